"""The stop of a training loop: all ranks decide on the same step, by an all-reduce that the training does not wait for.

Every few steps each rank submits its values to an all-reduce of maxima, and reads the result some steps later, when it
has arrived. To submit one integer by gloo takes 14 us; to wait for it would take 290 us. The message also has one place
for each rank, which it alone fills, so that all ranks know the numbers of all.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist

from slurmddp.runtime.exiting.classify import Stopped
from slurmddp.runtime.launch.rank import record_mlflow_run
from slurmddp.runtime.rendezvous.process_group import form_control_group
from slurmddp.runtime.stopping.policy import Phase
from slurmddp.runtime.stopping.stopping import Progress, Stopping

ROUND_S = 0.25
"""Length of a round, of one step at least; a decision takes two rounds at most."""


class Decision(NamedTuple):
    """What all ranks decided to do after the same step."""

    stop: bool
    save: bool
    step_us: int = 0
    """The mean step time of the slowest rank in a round."""
    backwards_us: tuple[int, ...] = ()
    """What `measure` returned on each rank; empty between two rounds."""


NOTHING = Decision(stop=False, save=False)


class LoopStop:
    """The stop of one training loop, of `Checkpointer` or of a framework's Trainer; all ranks call the same methods."""

    def __init__(self, stopping: Stopping) -> None:
        self.stopping = stopping
        self.step = 0
        """Optimizer steps finished."""
        self._is_on = False
        self.group: dist.ProcessGroup | None = None
        """The gloo group by which they agree; None where this process is alone."""
        self._work: dist.Work | None = None

    def begin(
        self,
        step: int,
        *,
        world_size: int = 1,
        group: "dist.ProcessGroup | None" = None,
        measure: Callable[[], int] = lambda: 0,
        **hooks: Any,
    ) -> None:
        """Answer stop requests from now on by a step that all ranks agree on; `hooks` are those of the phase.

        They agree by `group`, a gloo group, or by a new one of `world_size` ranks. `measure` is called once a round.
        """
        record_mlflow_run(self.stopping.rank)
        self.group, self._measure = group or form_control_group(world_size), measure
        self.step, self._progress, self._is_on = step, Progress(), True
        self._work, self._steps, self._round, self._began = None, 0, 1, time.monotonic()
        self.stopping.enter(Phase.LOOP, progress=self._progress, **hooks)

    def poll(self, step: int, *, save: bool = False) -> Decision:
        """Count a finished step; return what all ranks do after it. A batch without a step decides nothing.

        Submits what this rank wants; raises torch's error when a peer is lost.
        """
        if not self._is_on or step == self.step:
            return NOTHING
        now = time.monotonic()
        self._progress.longest_s = max(self._progress.longest_s, now - self._progress.finished_at)
        self._progress.finished_at = now
        self.step = step
        stop = self.stopping.signals.stop_requested
        if self.group is None:
            return Decision(stop, save)
        self._steps += 1
        if self._steps < self._round:
            return NOTHING
        decided = self._collect()
        self._submit(stop=stop, save=save and not decided.save)
        return decided

    def conclude(self) -> bool:
        """Run the last round: wait for the other ranks, and return whether all stop after the last step."""
        stop = self.stopping.signals.stop_requested
        if not self._is_on or self.group is None:
            return self._is_on and stop
        decided = self._collect()
        self._submit(stop=stop or decided.stop, save=False)
        return self._collect().stop

    def _collect(self) -> Decision:
        if self._work is None:
            return NOTHING
        self._work.wait()
        self._work = None
        stop, save, step_us, *backwards_us = self._sent.tolist()
        self._round = max(1, round(ROUND_S * 1e6) // max(step_us, 1))
        return Decision(bool(stop), bool(save), step_us, tuple(backwards_us))

    def _submit(self, *, stop: bool, save: bool) -> None:
        now = time.monotonic()
        step_us = round((now - self._began) * 1e6) // max(self._steps, 1)
        backwards_us = [0] * dist.get_world_size(self.group)
        backwards_us[dist.get_rank(self.group)] = self._measure()
        self._sent = torch.tensor([stop, save, step_us, *backwards_us], dtype=torch.int64)
        self._work = dist.all_reduce(self._sent, dist.ReduceOp.MAX, self.group, async_op=True)
        self._steps, self._began = 0, now

    def end(self, phase: Phase = Phase.SCRIPT, **hooks: Any) -> None:
        """Leave the loop: the script goes on, or an exception does."""
        if self._is_on:
            self._is_on = False
            self.stopping.enter(phase, **hooks)

    def fail(self, error: BaseException) -> None:
        """Leave the loop by an exception of the program, after this rank has saved what it holds; `Stopped` is none."""
        if not isinstance(error, Stopped):
            self.stopping.rescue()
            self.end(Phase.LEFT_LOOP, rescue=lambda: None)  # what follows may change the training

    def check_owner(self, *, anyone: bool = False) -> None:
        """Raise FencedError on rank 0, or on any, if another attempt owns the run: this one must not write then."""
        if self.stopping.rank.is_main or anyone:
            self.stopping.rank.check_owner()

    def leave(self, saved: str = "") -> NoReturn:
        """End the program, now that its state is saved."""
        self.stopping.enter(Phase.EXIT)
        reason = f"stop signal received at step {self.step} ({self.stopping.reason})"
        raise Stopped(self.step, f"{reason}; {saved or f'saved step {self.step}'}")
