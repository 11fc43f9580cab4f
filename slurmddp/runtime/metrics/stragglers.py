"""Names stragglers: ranks whose backward takes longer than that of the others, so that every step waits for them.

The step time shows no straggler, because all ranks wait in the same all-reduce. DistributedDataParallel times the
computation of the gradients alone, in its first ten iterations and in every hundredth. The numbers of all ranks travel
with the rounds of `slurmddp.runtime.stopping.consensus`; rank 0 compares them.
"""

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.runs.training_events import Straggler
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.launch.rank import Rank

FACTOR: Final = 1.3
"""A backward is slow when it takes this many times the median."""
SHARE: Final = 0.1
"""And its excess over the median is at least this share of a step."""
TIMES: Final = 5
"""Slow backwards in a row before the rank is named."""
AGAIN_S: Final = 600.0
"""Before the same rank is named again."""


class Slow(NamedTuple):
    """A straggler, its last backward, and the median of all ranks."""

    rank: int
    took_us: int
    middle_us: int


class Comparison:
    """Counts how often each rank was slow in a row. Pure."""

    def __init__(self) -> None:
        self._in_a_row: dict[int, int] = {}

    def add(self, step_us: int, backwards_us: Sequence[int]) -> list[Slow]:
        """Return the ranks that were slow TIMES times in a row; 0 means that a rank measured nothing."""
        if not backwards_us or not all(backwards_us):
            return []
        middle_us = statistics.median_low(backwards_us)
        least_us = max(FACTOR * middle_us, middle_us + SHARE * step_us)
        long = {rank: took_us for rank, took_us in enumerate(backwards_us) if took_us > least_us}
        self._in_a_row = {rank: self._in_a_row.get(rank, 0) + 1 for rank in long}
        return [Slow(rank, long[rank], middle_us) for rank, times in self._in_a_row.items() if times >= TIMES]


class Stragglers:
    """Measures this rank's backwards; on rank 0, names the stragglers."""

    def __init__(self, parts: Iterable[nn.Module], who: Rank) -> None:
        self._models = list(find_ddp_modules(parts))
        self._iterations = [0] * len(self._models)
        self._who = who
        self._comparison = Comparison()
        self._named_at: dict[int, float] = {}

    def measure(self) -> int:
        """Return the microseconds of the last timed backward of this rank's models; 0 without a new one."""
        timed = [_last_timed(model) for model in self._models]
        iterations = [iteration for iteration, _ in timed]
        is_new, self._iterations = iterations != self._iterations, iterations
        return sum(took_us for _, took_us in timed) if is_new else 0

    def compare(self, step_us: int, backwards_us: Sequence[int]) -> None:
        """On rank 0, name the stragglers in its output and in the run's events."""
        if not self._who.is_main:
            return
        for slow in self._comparison.add(step_us, backwards_us):
            now = time.monotonic()
            if now >= self._named_at.get(slow.rank, -AGAIN_S) + AGAIN_S:
                self._named_at[slow.rank] = now
                self._name(slow)

    def _name(self, slow: Slow) -> None:
        host = self._who.host_of(slow.rank) or (self._who.host if self._who.nodes == 1 else "")
        took_s, middle_s = slow.took_us / 1e6, slow.middle_us / 1e6
        print_line(
            f"WARNING: rank {slow.rank}{f' on {host}' if host else ''} is slow: its backward takes "
            f"{took_s * 1e3:.1f} ms, others {middle_s * 1e3:.1f} ms, and every step waits for it"
        )
        write_event(self._who, Straggler(slow_rank=slow.rank, slow_host=host, backward_s=took_s, others_s=middle_s))


def find_ddp_modules(parts: Iterable[nn.Module]) -> Iterator[DistributedDataParallel]:
    """Yield the DistributedDataParallel modules in some modules."""
    for part in parts:
        yield from (module for module in part.modules() if isinstance(module, DistributedDataParallel))


def _last_timed(model: DistributedDataParallel) -> tuple[int, int]:
    """Return the last timed iteration and the microseconds of its backward.

    torch has no public name for it (2.4 to 2.13); a test checks that the two keys exist.
    """
    data = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001 - as above
    return data.get("iteration", 0), data.get("backward_compute_time", 0) // 1000
