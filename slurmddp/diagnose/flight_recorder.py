"""Which rank missed a collective, by dumps of torch's flight recorder or by the watchdogs' lines.

A separate process reads the dumps.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.diagnose import flight_pickles
from slurmddp.diagnose.rule_types import compile_regex

READ_LIMIT_S: Final = 30.0  # for all dumps, which one process reads; a dump usually takes a tenth of a second
_SAME_SIZES: Final = frozenset({"all_reduce", "allreduce", "broadcast"})
"""Collectives whose sizes must be equal on all ranks."""
_TIMED_OUT: Final = compile_regex(
    r"\[(?:(?P<group>PG .*?) )?Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<kind>\w+)"
)

FlightRecord = Mapping[int, tuple[str, str]]
"""The collectives of the default group that one rank's recorder holds: by number the kind and the inputs' sizes."""


class Divergence(NamedTuple):
    """The first collective that not all ranks entered."""

    rank: int
    what: str  # one sentence
    differs: bool  # whether the rank entered another collective, and not none


def load_dumps(paths: Sequence[Path]) -> dict[Path, FlightRecord]:
    """Return what each dump holds, without files that are no dump, and those from one that takes too much on."""
    command = [sys.executable, "-I", flight_pickles.__file__, *map(str, paths)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_LIMIT_S, check=False)  # noqa: S603 - our own program; each path is a word of its own
        printed = done.stdout
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""
    lines = printed[: printed.rfind(b"\n") + 1].splitlines()
    dumps = ((path, json.loads(line)) for path, line in zip(paths, lines, strict=False))
    return {path: {at: (kind, sizes) for at, kind, sizes in entries} for path, entries in dumps if entries is not None}


def find_divergence(records: Mapping[int, FlightRecord]) -> Divergence | None:
    """Return the first number at which ranks entered different collectives, else the first that some did not enter."""
    if len(records) < 2:  # noqa: PLR2004 - a single rank cannot diverge
        return None
    common = set.intersection(*map(set, records.values()))
    for number in sorted(common):
        if odd := _find_odd_rank({rank: record[number] for rank, record in records.items()}, number):
            return odd
    last = {rank: max(record, default=0) for rank, record in records.items()}
    rank, ahead = min(last, key=lambda rank: (last[rank], rank)), max(last.values())
    if last[rank] == ahead:
        return None
    missed = last[rank] + 1
    kind, sizes = next(one[number] for number in (missed, ahead) for one in records.values() if number in one)
    what = f"rank {rank} did not enter collective {missed} ({kind} of {sizes})"
    return Divergence(rank=rank, what=what, differs=False)


def find_lagging_rank(texts: Iterable[str]) -> Divergence | None:
    """Return the rank that waits in an earlier collective than all others, by what torch's watchdogs print.

    None where they speak of several groups, which count their collectives apart.
    """
    found = [match for text in texts if (match := _TIMED_OUT.search(text))]
    waits: dict[int, int] = {}
    for match in found:
        rank, number = int(match["rank"]), int(match["number"])
        waits[rank] = min(number, waits.get(rank, number))
    first, *others = sorted(waits, key=lambda rank: waits[rank]) or [0]
    if len({match["group"] for match in found}) != 1 or not others or waits[first] == waits[others[0]]:
        return None
    kind = next(match["kind"] for match in found if int(match["rank"]) == first)
    behind = f"rank {first} is behind: it waits in collective {waits[first]} ({kind})"
    return Divergence(rank=first, what=f"{behind}, the others in {waits[others[0]]} and later ones", differs=False)


def _find_odd_rank(entered: Mapping[int, tuple[str, str]], number: int) -> Divergence | None:
    """Return the first rank that entered another collective than most ranks did."""
    compared = {rank: (kind, sizes if kind in _SAME_SIZES else "") for rank, (kind, sizes) in entered.items()}
    values = list(compared.values())
    usual = max(values, key=lambda value: (values.count(value), value == compared[min(compared)]))
    rank = next((rank for rank in sorted(compared) if compared[rank] != usual), None)
    if rank is None:
        return None
    other = next(rank for rank in sorted(compared) if compared[rank] == usual)
    one, two = (f"{kind} of {sizes}" if sizes != "[]" else kind for kind, sizes in (entered[rank], entered[other]))
    what = f"ranks entered different collectives: number {number} was {one} on rank {rank}, and {two} on rank {other}"
    return Divergence(rank=rank, what=what, differs=True)
