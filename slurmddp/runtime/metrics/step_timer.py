"""Measures the time of the steps, in a job that ends after a given number of them (`--steps`)."""

import os
import time
from collections.abc import Iterable

import torch
from torch import nn

from slurmddp import variables
from slurmddp.errors import RankError
from slurmddp.runs.training_events import Timing
from slurmddp.runtime.metrics.stragglers import find_ddp_modules

BLOCKS = 20
"""Number of blocks of steps; a GPU, which works asynchronously, is synchronized only between two blocks."""


class StepTimer:
    """The seconds of this rank's steps, in blocks of the same number of steps."""

    def __init__(self, asked: int, parts: Iterable[nn.Module], device: torch.device) -> None:
        self.asked = asked
        """Steps after which the loop ends."""
        self._models = list(find_ddp_modules(parts))
        self._device = device
        self._block = max(1, asked // BLOCKS)
        self._steps = 0
        self._times: list[float] = []
        self._waits: list[float] = []
        for model in self._models:
            model._set_ddp_runtime_logging_sample_rate(1)  # type: ignore[no-untyped-call]  # noqa: SLF001 - torch has no public name
        self._began = self._now()

    def count(self) -> None:
        """Count a finished step."""
        self._steps += 1
        if self._steps % self._block:
            return
        now = self._now()
        self._times.append((now - self._began) / self._block)
        if self._models:
            self._waits.append(sum(_exposed_s(model) for model in self._models))
        self._began = self._now()

    def event(self, *, step: int, total: int, world_size: int, samples: int | None) -> Timing:
        """Return the measured times as an event; the parameters are fields of `Timing`."""
        return Timing(
            step=step,
            total=total,
            asked=self.asked,
            world_size=world_size,
            samples=samples,
            block=self._block,
            times_s=tuple(self._times),
            waits_s=tuple(self._waits),
        )

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def from_environment(parts: Iterable[nn.Module], device: torch.device) -> StepTimer | None:
    """Return the timer of the steps that were asked for; None without `--steps`.

    Raises RankError if the variable is not a number.
    """
    text = os.environ.get(variables.STEP_LIMIT)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise RankError(f"{variables.STEP_LIMIT}={text!r} is not a whole number, 1 or more; it is set by --steps")
    return StepTimer(int(text), parts, device)


def _exposed_s(model: nn.Module) -> float:
    """Return how long the last backward waited for the gradients of other ranks after it had computed its own.

    DistributedDataParallel times computation, communication and their overlap (torch 2.4 to 2.13; a test checks that
    the keys exist).
    """
    data = model._get_ddp_logging_data()  # type: ignore[operator]  # noqa: SLF001 - torch has no public name for it
    waited_ns = data.get("backward_comm_time", 0) - data.get("backward_compute_comm_overlap_time", 0)
    return float(max(0, waited_ns)) / 1e9
