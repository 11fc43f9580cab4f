"""Measures what a step takes, where the job was told to end after so many of them."""

import os
import time
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from slurmddp import variables
from slurmddp.errors import RankError
from slurmddp.runs.training_events import Timing
from slurmddp.runtime.metrics.stragglers import distributed

VARIABLE = variables.STEP_LIMIT
BLOCKS = 20
"""A GPU works behind the program's back: it is waited for only between blocks of steps, of which there are so many."""


def steps_asked(environment: Mapping[str, str]) -> int | None:
    """Return after how many steps the loop is to end, None for as many as the program says.

    Raises RankError for what is no number.
    """
    text = environment.get(VARIABLE)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise RankError(f"{VARIABLE}={text!r} is not a whole number, 1 or more; it is set by --steps")
    return int(text)


class Pace:
    """The seconds of this rank's steps, in blocks of the same number of steps."""

    def __init__(self, asked: int, parts: Iterable[nn.Module], device: torch.device) -> None:
        self.asked = asked
        """Steps after which the loop is to end."""
        self._models = list(distributed(parts))
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
        """Return what was measured; see `Timing` for the rest."""
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


def from_environment(parts: Iterable[nn.Module], device: torch.device) -> Pace | None:
    """Return what measures the steps that were asked for; None where nobody asked."""
    asked = steps_asked(os.environ)
    return None if asked is None else Pace(asked, parts, device)


def _exposed_s(model: nn.Module) -> float:
    """Return how long the last backward waited for the gradients of the others after it had computed its own.

    DistributedDataParallel times both and what they have in common (torch 2.4 to 2.13; a test holds that the keys
    are there).
    """
    data = model._get_ddp_logging_data()  # type: ignore[operator]  # noqa: SLF001 - torch has no public name for it
    waited_ns = data.get("backward_comm_time", 0) - data.get("backward_compute_comm_overlap_time", 0)
    return float(max(0, waited_ns)) / 1e9
