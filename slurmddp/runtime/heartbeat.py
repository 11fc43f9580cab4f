"""Starts the report of this rank to the supervisor (`slurmddp.watchdog.rank`), with the steps of its optimizers."""

import os
import sys
import threading
from typing import Any, Final

from slurmddp import variables
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.patches import after_import
from slurmddp.watchdog.beats import Beat
from slurmddp.watchdog.rank import Steps, send_beats

EVERY_S: Final = 2.0
RANKS_A_SECOND: Final = 32
"""Beats that the supervisor gets in a second, at most."""
ALONE_STEPS: Final = 3
"""After so many steps of its optimizers a program should have made a process group."""


def start_heartbeat(rank: Rank) -> None:
    """Report from now on, where a supervisor listens."""
    address, steps = os.environ.get(variables.BEATS), Steps()
    if not (address and rank.secret):
        return

    def count_steps(optimizer: Any) -> None:
        if hasattr(optimizer, "register_optimizer_step_post_hook"):  # from torch 2.0 on
            optimizer.register_optimizer_step_post_hook(steps.count)
            optimizer.register_optimizer_step_post_hook(lambda *_: _warn_if_alone(rank, steps.done))

    after_import("torch.optim.optimizer", count_steps)
    step, node = os.environ.get("SLURM_STEP_ID", ""), os.environ.get("SLURMD_NODENAME", rank.host)  # as Slurm knows it
    every_s = max(EVERY_S, rank.world_size / RANKS_A_SECOND)
    beat = Beat(rank.rank, rank.world_size, step, node, os.getpid(), every_s)
    threading.Thread(target=send_beats, args=(beat, steps, address, rank.secret), name="beats", daemon=True).start()


def _warn_if_alone(rank: Rank, step: int) -> None:
    """Say once, as rank 0, that the ranks train apart from each other: the program is one for a single GPU."""
    has_group = getattr(sys.modules.get("torch.distributed"), "is_initialized", bool)
    if step == ALONE_STEPS and rank.is_main and rank.world_size > 1 and not has_group():
        print_line(
            f"WARNING: {rank.world_size} ranks train, each the whole by itself: the program has made no process group; "
            "`slurmddp init --example ddp` writes a script for several ranks"
        )
