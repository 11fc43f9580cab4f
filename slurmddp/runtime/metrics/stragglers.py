"""Names a rank whose backward takes longer than the others', so that every step waits for it.

Wall clocks agree on all ranks, for all wait in the same all-reduce. DistributedDataParallel itself times how long the
gradients take to be computed, without the waiting, in its first ten iterations and in every hundredth. What each rank
measured travels with the rounds of `slurmddp.runtime.stopping.consensus`; rank 0 compares.
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
"""A backward this many times as long as the one in the middle is long."""
SHARE: Final = 0.1
"""And only when what it takes longer is this share of a step at least."""
TIMES: Final = 5
"""Backwards in a row that must be long before their rank is named."""
AGAIN_S: Final = 600.0
"""Before the same rank is named again."""


class Slow(NamedTuple):
    """A rank, its last backward, and the one in the middle of all ranks'."""

    rank: int
    took_us: int
    middle_us: int


class Comparison:
    """Which ranks were slow, time after time. Pure."""

    def __init__(self) -> None:
        self._in_a_row: dict[int, int] = {}

    def add(self, step_us: int, backwards_us: Sequence[int]) -> list[Slow]:
        """Return the ranks that have been slow TIMES times in a row; a 0 says that a rank measured nothing."""
        if not backwards_us or not all(backwards_us):
            return []
        middle_us = statistics.median_low(backwards_us)
        least_us = max(FACTOR * middle_us, middle_us + SHARE * step_us)
        long = {rank: took_us for rank, took_us in enumerate(backwards_us) if took_us > least_us}
        self._in_a_row = {rank: self._in_a_row.get(rank, 0) + 1 for rank in long}
        return [Slow(rank, long[rank], middle_us) for rank, times in self._in_a_row.items() if times >= TIMES]


class Stragglers:
    """Measures this rank's backwards; on rank 0, says which rank all wait for."""

    def __init__(self, parts: Iterable[nn.Module], who: Rank) -> None:
        self._models = list(distributed(parts))
        self._iterations = [0] * len(self._models)
        self._who = who
        self._comparison = Comparison()
        self._named_at: dict[int, float] = {}

    def measure(self) -> int:
        """Return the microseconds of the last timed backward of this rank's models; 0 where none came since."""
        timed = [_last_timed(model) for model in self._models]
        iterations = [iteration for iteration, _ in timed]
        news, self._iterations = iterations != self._iterations, iterations
        return sum(took_us for _, took_us in timed) if news else 0

    def compare(self, step_us: int, backwards_us: Sequence[int]) -> None:
        """Name the ranks that are slow, in rank 0's output and in the run's events."""
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


def distributed(parts: Iterable[nn.Module]) -> Iterator[DistributedDataParallel]:
    """Yield what is wrapped for all ranks in some modules."""
    for part in parts:
        yield from (module for module in part.modules() if isinstance(module, DistributedDataParallel))


def _last_timed(model: DistributedDataParallel) -> tuple[int, int]:
    """Return the last iteration that was timed, and the microseconds of its backward.

    torch has no public name for it (2.4 to 2.13); a test holds that the two keys are there.
    """
    data = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001 - as above
    return data.get("iteration", 0), data.get("backward_compute_time", 0) // 1000
