"""Which ranks the job's srun says it could not start. Reads the ends of the batch log and of the events, without torch.

srun of Slurm 22.05 goes on with the others, which would wait for them: as when a node cannot open its ranks' output.
"""

import os
import re
from typing import Final

from slurmddp.runs.history import read_newest
from slurmddp.runtime.launch.rank import Rank

_FAILED: Final = re.compile(r"^srun: error: task (\d+) launch failed: (.*)$", re.MULTILINE)
_READ_BYTES: Final = 2**16
"""So much of the log's end is read; what a start of the ranks says before they meet is less."""


def unstarted(rank: Rank) -> tuple[list[int], str]:
    """Return the ranks that this start lacks for good, and why in srun's words; none where nobody says so."""
    said = _said_of(rank) if rank.under_srun else ""
    failed = [(int(task), why) for task, why in _FAILED.findall(said)]
    size = 1 if rank.launcher == "srun" else rank.local_world_size
    ranks = [number for task, _ in failed for number in range(task * size, (task + 1) * size)]
    return ranks, failed[0][1] if failed else ""


def _said_of(rank: Rank) -> str:
    """Return what the log has of this start, from where the supervisor's event of it says that it begins."""
    if rank.run_dir is None:
        return ""
    own = read_newest(rank.run_dir).of_job(rank.job).all("attempt_start")
    offset = next((event.count("log_offset") for event in reversed(own) if event.attempt == rank.attempt), None)
    if offset is None:
        return ""
    try:
        with rank.run_dir.batch_log(rank.job).open("rb") as log:
            log.seek(max(offset, log.seek(0, os.SEEK_END) - _READ_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
