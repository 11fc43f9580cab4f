"""Lets all ranks take one decision at the same step, by a reduction that the training never waits for.

Every few steps each rank hands in what it knows; the largest of each is what all read some steps later, when it has
long arrived. One integer by gloo takes 14 us to hand in, and would take 290 us to wait for. Beside what is decided
there is a place for each rank, into which it alone puts a number: so all know all of them.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

EVERY_S = 0.25
"""A decision is at most two such rounds away, each of as many steps as fit, and of one step at least."""


class Decision(NamedTuple):
    """What all ranks do after the same step."""

    stop: bool
    save: bool
    step_us: int = 0
    """Of the slowest rank, in the mean of a round."""
    backwards_us: tuple[int, ...] = ()
    """What each rank measured, by rank; empty between the rounds."""


NOTHING = Decision(stop=False, save=False)


class Agreement:
    """The rounds of one training; each call of `poll` comes after the same step on every rank."""

    def __init__(self, group: dist.ProcessGroup | None, measure: Callable[[], int] = lambda: 0) -> None:
        """`group` is one of gloo, None where this process is alone; `measure` is asked once a round."""
        self._group = group
        self._measure = measure
        self._work: dist.Work | None = None
        self._sent = torch.zeros(0, dtype=torch.int64)
        self._steps = 0
        self._round = 1
        self._began = time.monotonic()

    def poll(self, *, stop: bool, save: bool) -> Decision:
        """Hand in what this rank wants, and return what was agreed on; raise torch's error when a peer is lost."""
        if self._group is None:
            return Decision(stop, save)
        self._steps += 1
        if self._steps < self._round:
            return NOTHING
        agreed = self._collect()
        self._hand_in(stop=stop, save=save and not agreed.save)
        return agreed

    def conclude(self, *, stop: bool) -> bool:
        """Wait for what was handed in, and tell whether any rank wants to stop now; the last round of a training."""
        if self._group is None:
            return stop
        agreed = self._collect()
        self._hand_in(stop=stop or agreed.stop, save=False)
        return self._collect().stop

    def _collect(self) -> Decision:
        if self._work is None:
            return NOTHING
        self._work.wait()
        self._work = None
        stop, save, step_us, *backwards_us = self._sent.tolist()
        self._round = max(1, round(EVERY_S * 1e6) // max(step_us, 1))
        return Decision(bool(stop), bool(save), step_us, tuple(backwards_us))

    def _hand_in(self, *, stop: bool, save: bool) -> None:
        now = time.monotonic()
        step_us = round((now - self._began) * 1e6) // max(self._steps, 1)
        backwards_us = [0] * dist.get_world_size(self._group)
        backwards_us[dist.get_rank(self._group)] = self._measure()
        self._sent = torch.tensor([stop, save, step_us, *backwards_us], dtype=torch.int64)
        self._work = dist.all_reduce(self._sent, dist.ReduceOp.MAX, self._group, async_op=True)
        self._steps, self._began = 0, now
