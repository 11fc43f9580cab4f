"""Measures the steps: their times, in a job that ends after a given number of them (`--steps`), and the stragglers.

A straggler is a rank whose backward takes longer than that of the others, so that every step waits for it. The step
time shows no straggler, because all ranks wait in the same all-reduce. DistributedDataParallel times the computation of
the gradients alone, in its first ten iterations and in every hundredth. The numbers of all ranks travel with the rounds
of `slurmddp.runtime.stopping.consensus`; rank 0 compares them.
"""

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

from slurmddp import variables
from slurmddp.errors import RankError
from slurmddp.runs.training_events import Straggler, Timing
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank

FACTOR: Final = 1.3
"""A backward is slow when it takes this many times the median."""
SHARE: Final = 0.1
"""And its excess over the median is at least this share of a step."""
TIMES: Final = 5
"""Slow backwards in a row before the rank is named."""
AGAIN_S: Final = 600.0
"""Before the same rank is named again."""
BLOCKS: Final = 20
"""Number of blocks of steps; a GPU, which works asynchronously, is synchronized only between two blocks."""


class Stragglers:
    """Measures this rank's backwards; on rank 0, names the stragglers."""

    def __init__(self, models: Sequence[DistributedDataParallel], who: Rank) -> None:
        self._models = models
        self._iterations = [0] * len(self._models)
        self._who = who
        self._in_a_row: dict[int, int] = {}
        self._named_at: dict[int, float] = {}

    def measure(self) -> int:
        """Return the microseconds of the last timed backward of this rank's models; 0 without a new one."""
        # torch has no public name for it (2.4 to 2.13); a test checks that the two keys exist.
        timed = [model._get_ddp_logging_data() for model in self._models]  # type: ignore[no-untyped-call]  # noqa: SLF001
        iterations = [data.get("iteration", 0) for data in timed]
        is_new, self._iterations = iterations != self._iterations, iterations
        return sum(data.get("backward_compute_time", 0) // 1000 for data in timed) if is_new else 0

    def find_slow(self, step_us: int, backwards_us: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return the ranks that were slow TIMES times in a row, with their last backward and the median of all.

        0 means that a rank measured nothing.
        """
        if not backwards_us or not all(backwards_us):
            return []
        middle_us = statistics.median_low(backwards_us)
        least_us = max(FACTOR * middle_us, middle_us + SHARE * step_us)
        long = {rank: took_us for rank, took_us in enumerate(backwards_us) if took_us > least_us}
        self._in_a_row = {rank: self._in_a_row.get(rank, 0) + 1 for rank in long}
        return [(rank, long[rank], middle_us) for rank, times in self._in_a_row.items() if times >= TIMES]

    def compare(self, step_us: int, backwards_us: Sequence[int]) -> None:
        """On rank 0, name the stragglers in its output and in the run's events."""
        if not self._who.is_main:
            return
        for rank, took_us, middle_us in self.find_slow(step_us, backwards_us):
            now = time.monotonic()
            if now >= self._named_at.get(rank, -AGAIN_S) + AGAIN_S:
                self._named_at[rank] = now
                host = self._who.host_of(rank) or (self._who.host if self._who.nodes == 1 else "")
                took_s, middle_s = took_us / 1e6, middle_us / 1e6
                print_line(
                    f"WARNING: rank {rank}{f' on {host}' if host else ''} is slow: its backward takes "
                    f"{took_s * 1e3:.1f} ms, others {middle_s * 1e3:.1f} ms, and every step waits for it"
                )
                write_event(self._who, Straggler(slow_rank=rank, slow_host=host, backward_s=took_s, others_s=middle_s))


class StepTimer:
    """The seconds of this rank's steps, in blocks of the same number of steps."""

    def __init__(self, asked: int, models: Sequence[DistributedDataParallel], device: torch.device) -> None:
        self.asked = asked
        """Steps after which the loop ends."""
        self._models = models
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
            # How long the last backward waited for the gradients of other ranks after it had computed its own.
            # DistributedDataParallel times computation, communication and their overlap (torch 2.4 to 2.13; a test
            # checks that the keys exist).
            timed = [model._get_ddp_logging_data() for model in self._models]  # type: ignore[no-untyped-call]  # noqa: SLF001
            waits_ns = [
                data.get("backward_comm_time", 0) - data.get("backward_compute_comm_overlap_time", 0) for data in timed
            ]
            self._waits.append(sum(max(0, wait_ns) / 1e9 for wait_ns in waits_ns))
        self._began = self._now()

    def event(self, **fields: Any) -> Timing:
        """Return the measured times as an event; `fields` are its other ones."""
        times_s, waits_s = tuple(self._times), tuple(self._waits)
        return Timing(asked=self.asked, block=self._block, times_s=times_s, waits_s=waits_s, **fields)

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def timer_from_environment(models: Sequence[DistributedDataParallel], device: torch.device) -> "StepTimer | None":
    """Return the timer of the steps that were asked for; None without `--steps`.

    Raises RankError if the variable is not a number.
    """
    text = os.environ.get(variables.STEP_LIMIT)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise RankError(f"{variables.STEP_LIMIT}={text!r} is not a whole number, 1 or more; it is set by --steps")
    return StepTimer(int(text), models, device)
