"""Finds the ranks that srun could not start, in the batch log. Without torch.

srun of Slurm 22.05 starts the other ranks all the same, which would then wait for these: for example when a node cannot
open the output files of its ranks.
"""

import os
import re
from typing import Final

from slurmddp.runs.history import read_newest
from slurmddp.runtime.launch.rank import Rank

_FAILED: Final = re.compile(r"^srun: error: task (\d+) launch failed: (.*)$", re.MULTILINE)
_READ_BYTES: Final = 2**16
"""Read from the end of the log; srun's messages before the rendezvous are shorter."""


def find_unstarted_ranks(rank: Rank) -> tuple[list[int], str]:
    """Return the ranks that srun could not start in this attempt, and the reason; nothing if it started all."""
    log = _read_log_of_attempt(rank) if rank.under_srun else ""
    failed = [(int(task), reason) for task, reason in _FAILED.findall(log)]
    ranks_per_task = 1 if rank.launcher == "srun" else rank.local_world_size
    ranks = [task * ranks_per_task + number for task, _ in failed for number in range(ranks_per_task)]
    return ranks, failed[0][1] if failed else ""


def _read_log_of_attempt(rank: Rank) -> str:
    """Return the log from the offset that the supervisor's event of this attempt gives."""
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
