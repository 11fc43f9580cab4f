"""Lets all ranks stop the loop of a framework's Trainer after the same optimizer step, when the state is saved."""

import os
from typing import NoReturn

import torch.distributed as dist

from slurmddp.runs.ownership import ownership_of
from slurmddp.runtime.exiting.classify import Stopped
from slurmddp.runtime.launch.trackers import record_mlflow_run
from slurmddp.runtime.session import CONTROL_LIMIT
from slurmddp.runtime.stopping.consensus import Consensus
from slurmddp.runtime.stopping.stop_policy import Phase, Progress, Stopping


class TrainerStop:
    """The stop of one training loop; the callback of each framework calls it after each step."""

    def __init__(self, stopping: Stopping) -> None:
        self.stopping = stopping
        self.step = 0
        """Optimizer steps finished."""
        self._consensus: Consensus | None = None
        self._progress = Progress()

    @property
    def in_loop(self) -> bool:
        """Whether the training loop is running, and answers stop requests."""
        return self._consensus is not None

    def begin(self, step: int, world_size: int) -> None:
        """Begin to agree with all ranks on a step to stop at."""
        record_mlflow_run(self.stopping.rank)
        together = world_size > 1
        self._consensus = Consensus(dist.new_group(backend="gloo", timeout=CONTROL_LIMIT) if together else None)
        self.step = step
        self._progress.begin()
        self.stopping.progress = self._progress
        self.stopping.enter(Phase.LOOP)

    def decide(self, step: int) -> bool:
        """Count a finished step; return whether all ranks stop after it. A batch without a step decides nothing."""
        if self._consensus is None or step == self.step:
            return False
        self._progress.finish_step()
        self.step = step
        return self._consensus.poll(stop=self.stopping.signals.stop_requested, save=False).stop

    def conclude(self) -> bool:
        """Return whether all ranks stop after the last step; each rank waits for the others."""
        return self._consensus is not None and self._consensus.conclude(stop=self.stopping.signals.stop_requested)

    def end(self, phase: Phase = Phase.SCRIPT) -> None:
        """Leave the loop: the script goes on, or an exception does."""
        if self.in_loop:
            self._consensus = None
            self.stopping.enter(phase)

    def check_owner(self) -> None:
        """Raise FencedError if another attempt owns the run: this one must not write then."""
        rank = self.stopping.rank
        owner = ownership_of(rank.run_dir.owner, os.environ) if rank.run_dir and rank.is_main else None
        if owner:
            owner.check()

    def leave(self) -> NoReturn:
        """End the program, now that its state is saved."""
        self.stopping.enter(Phase.EXIT)
        raise Stopped(
            self.step, f"stop signal received at step {self.step} ({self.stopping.reason}); saved step {self.step}"
        )
