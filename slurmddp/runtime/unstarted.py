"""Which ranks the job's srun says it could not start. Reads the end of the batch script's log; torch is not needed.

srun of Slurm 22.05 goes on with the others, which would wait for them: as when a node cannot open its ranks' output.
"""

import os
import re
from typing import Final

from slurmddp.runtime.environment import Rank

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
    """Return what the log has of this start, from the line in which the batch script announces it."""
    if rank.run_dir is None:
        return ""
    try:
        with rank.run_dir.batch_log(rank.job).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _READ_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text.rpartition(f" slurmddp: job {rank.job}, attempt {rank.attempt}, on ")[2]
