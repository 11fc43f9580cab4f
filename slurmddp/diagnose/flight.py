"""torch's flight recorder: which rank did not come to a collective. Reads its dumps, pickles, without running them."""

import io
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

LARGEST_BYTES: Final = 2**25
"""Of a dump that is read; two thousand collectives with their lines of program are some megabytes."""
_DEFAULT: Final = "0"
_SAME_SIZES: Final = frozenset({"all_reduce", "allreduce", "broadcast"})
"""Collectives that want the same sizes on every rank."""


_BROKEN: Final = (
    OSError, ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError,
    pickle.UnpicklingError,
)  # fmt: skip
"""What a file that is no dump, or a torn or hostile one, leads to."""
_NAME_CHARS: Final = 100
_MOST_SIZES: Final = 64
"""Of the tensors in one collective, and of the dimensions of one, that are told."""


class _Plain(pickle.Unpickler):
    """Takes numbers, texts and containers only; a dump can come from anybody who may write to the folder."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"{module_name}.{global_name} has no place in a dump")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError(f"{pid!a} has no place in a dump")


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


def load(path: Path) -> Flight | None:
    """Return what a dump holds; None for a file that is none, or too large."""
    with suppress(*_BROKEN):
        if path.stat().st_size <= LARGEST_BYTES:
            entries = _Plain(io.BytesIO(path.read_bytes())).load()["entries"]
            return Flight(dict(_entry(entry) for entry in entries if _counts(entry)))
    return None


def _counts(entry: Mapping[str, Any]) -> bool:
    return entry["process_group"][0] == _DEFAULT and not entry["is_p2p"]


def _entry(entry: Mapping[str, Any]) -> tuple[int, tuple[str, str]]:
    kind = str(entry["profiling_name"])[:_NAME_CHARS].rpartition(":")[2]
    sizes = [[int(size) for size in tensor[:_MOST_SIZES]] for tensor in entry["input_sizes"][:_MOST_SIZES]]
    return int(entry["collective_seq_id"]), (kind, str(sizes))


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
