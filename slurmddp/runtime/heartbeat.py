"""Starts the report of this rank to the supervisor (`slurmddp.watchdog.rank`), and counts the program's progress."""

import os
from collections.abc import Callable
from typing import Any

from slurmddp import variables
from slurmddp.runtime import patches
from slurmddp.runtime.imports import after_import
from slurmddp.runtime.launch.rank import Rank
from slurmddp.watchdog.rank import COUNTS, Heart


def start_heart(rank: Rank) -> "Heart | None":
    """Report from now on, and return what reports; None where no supervisor listens."""
    address = os.environ.get(variables.BEATS)
    if not (address and rank.secret):
        return None
    after_import("torch.optim.optimizer", _count_steps)
    after_import("torch.utils.data.dataloader", lambda _: patches.replace(patches.LOADER, _count_batches))
    node = os.environ.get("SLURMD_NODENAME", rank.host)  # the supervisor asks Slurm for it
    return Heart(address, rank.secret, rank=rank.rank, world_size=rank.world_size, host=node)


def _count_steps(optimizer: Any) -> None:
    if hasattr(optimizer, "register_optimizer_step_post_hook"):  # from torch 2.0 on
        optimizer.register_optimizer_step_post_hook(lambda *_: COUNTS.step())


def _count_batches(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def take_and_count(self: Any) -> Any:
        batch = take(self)
        COUNTS.batch()
        return batch

    return take_and_count
