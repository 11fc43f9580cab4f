"""torch's flight recorder: which rank did not come to a collective. Its dumps are read by `dumps`, a process apart."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.diagnose import flight_pickles

READ_LIMIT_S: Final = 30.0
"""For all dumps that one process reads; a tenth of a second each is usual."""
MOST_READERS: Final = 3
"""So many processes are started: a dump that ends its reader is passed over, and many such are given up."""
_SAME_SIZES: Final = frozenset({"all_reduce", "allreduce", "broadcast"})
"""Collectives that want the same sizes on every rank."""


@dataclass(frozen=True)
class Flight:
    """What one rank's recorder holds of the group of all ranks."""

    collectives: Mapping[int, tuple[str, str]]
    """By number: the kind, and the sizes of what went in."""

    @property
    def last(self) -> int:
        """The number of the last that the rank came to; 0 for none."""
        return max(self.collectives, default=0)


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where ranks went different ways."""

    rank: int
    what: str
    """One sentence."""
    differs: bool
    """Whether the rank was in another collective, and not in none."""


def load(paths: Sequence[Path]) -> dict[Path, Flight]:
    """Return what each dump holds; files that are none, are too large, or take too long or too much, are left out."""
    found: dict[Path, Flight] = {}
    left = list(paths)
    for _ in range(MOST_READERS):
        if not left:
            break
        done = [_told(line) for line in _read(left).splitlines()]
        found |= {left[at]: flight for at, flight in enumerate(done) if flight}
        left = left[len(done) + 1 :]  # the next one is what it ended of
    return found


def _read(paths: Sequence[Path]) -> bytes:
    """Return a line of JSON for each dump that a process of its own has read, until it ended or was ended."""
    command = [sys.executable, "-I", flight_pickles.__file__, *map(str, paths)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        return _whole(late.stdout or b"")
    return _whole(done.stdout)


def _whole(said: bytes) -> bytes:
    return said[: said.rfind(b"\n") + 1]


def _told(line: bytes) -> Flight | None:
    held = json.loads(line)
    return Flight({number: (kind, sizes) for number, kind, sizes in held}) if held is not None else None


def parting(flights: Mapping[int, Flight]) -> Parting | None:
    """Return where the ranks parted: another collective at the same number, else the first that some did not reach."""
    if len(flights) < 2:  # noqa: PLR2004 - one alone has nobody to part from
        return None
    common = set.intersection(*(set(flight.collectives) for flight in flights.values()))
    for number in sorted(common):
        odd = _odd({rank: flight.collectives[number] for rank, flight in flights.items()}, number)
        if odd:
            return odd
    last = {rank: flight.last for rank, flight in flights.items()}
    rank, ahead = min(last, key=lambda rank: (last[rank], rank)), max(last.values())
    if last[rank] == ahead:
        return None
    kind = next(flight.collectives[ahead] for flight in flights.values() if ahead in flight.collectives)
    missed = next(
        (flight.collectives[last[rank] + 1] for flight in flights.values() if last[rank] + 1 in flight.collectives),
        kind,
    )
    what = f"rank {rank} did not come to collective {last[rank] + 1} ({missed[0]} of {missed[1]})"
    return Parting(rank=rank, what=what, differs=False)


def _odd(seen: Mapping[int, tuple[str, str]], number: int) -> Parting | None:
    """Return the first rank that was in something else than most were."""
    kinds = {rank: kind if kind in _SAME_SIZES else "" for rank, (kind, _) in seen.items()}
    keys = {rank: (seen[rank][0], seen[rank][1] if kinds[rank] else "") for rank in seen}
    values = list(keys.values())
    usual = max(values, key=lambda key: (values.count(key), key == keys[min(keys)]))
    rank = next((rank for rank in sorted(keys) if keys[rank] != usual), None)
    if rank is None:
        return None
    other = next(rank for rank in sorted(keys) if keys[rank] == usual)
    here, there = (f"{kind} of {sizes}" if sizes != "[]" else kind for kind, sizes in (seen[rank], seen[other]))
    what = f"ranks went different ways: in collective {number} rank {rank} was in {here}, rank {other} in {there}"
    return Parting(rank=rank, what=what, differs=True)
