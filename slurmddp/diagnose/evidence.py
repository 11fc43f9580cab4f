"""What is left of one start of the ranks, as one value; and how a line becomes a sighting. Reads files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slurmddp.diagnose import timestamps
from slurmddp.diagnose.catalogue import find
from slurmddp.diagnose.flight_recorder import Parting
from slurmddp.diagnose.log_reader import Raw, evidence
from slurmddp.diagnose.model import Line, Rule, Sighting
from slurmddp.diagnose.rank_exits import Ending
from slurmddp.diagnose.tracebacks import LONG, fatal, ordinary_after

ABNORMAL: Final = 3
"""How many lines are shown of a cause that is not known."""
_BY_SLURM: Final = re.compile(r"srun: |slurmstepd|\[\d{4}-\S+\] error: \*\*\*|\S+ slurmddp: ")
"""Their words are no warnings."""
_WORDS: Final = ("error", "fatal", "exception", "traceback", "failed", "cannot", "abort", "panic", "denied", "invalid")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is left of one start of the ranks."""

    attempt: str = ""
    sightings: tuple[Sighting, ...] = ()
    endings: tuple[Ending, ...] = ()
    """In the order in which the launchers told of them."""
    world: int = 0
    """How many ranks there were; 0 where nobody knows."""
    hosts: Mapping[int, str] | None = None
    """Of each rank; None where nobody knows."""
    silent: tuple[int, ...] = ()
    """Ranks without a record, where others have one."""
    failed: int = 0
    """How many ranks left a record of a failure."""
    ended_well: bool = False
    stopped: Line | None = None
    """Rank 0's record where all were told to stop and had saved."""
    went_on: bool = False
    """Whether the program printed on after the last end that a launcher told of: another rank, or another start."""
    parting: Parting | None = None
    abnormal: tuple[Line, ...] = ()
    """The first lines that look like something wrong; the last ones where none does."""

    def host_of(self, rank: int | None) -> str:
        """Return a rank's node; empty where nobody knows."""
        return (self.hosts or {}).get(rank, "") if rank is not None else ""


def sighting(
    rule: Rule, found: Mapping[str, str], line: Line, *, time: float | None, rank: int | None, host: str = ""
) -> Sighting:
    """Return what a rule tells of a line; the rule's own `rank` and `host` beat those of the file."""
    named = found.get("rank", "")
    elsewhere = named.isdecimal() and int(named) != rank
    return Sighting(
        rule=rule,
        what=rule.what.format(**found).strip(": "),
        advice=rule.advice,
        line=line,
        time=time,
        rank=int(named) if named.isdecimal() else rank,
        host=found.get("host") or ("" if elsewhere else host),
    )


def of_exceptions(texts: Sequence[str]) -> tuple[int, Rule, Mapping[str, str]] | None:
    """Return which exception of a chain, the first raised at the head, tells the cause, and by which rule."""
    found = [(number, *known) for number, text in enumerate(texts) if (known := find(text, "exception"))]
    special = [item for item in found if not item[1].general]
    return next(iter(special or found[-1:]), None)


def of_tracebacks(lines: Sequence[Raw], *, rank: int | None, time: float | None, host: str = "") -> Iterator[Sighting]:
    """Yield a sighting for each traceback that ended something."""
    for chain in fatal(lines):
        known = of_exceptions([line.text for line in chain.last])
        if known:
            number, rule, found = known
            seen = sighting(rule, found, evidence(chain.last[number]), time=time, rank=rank, host=host)
            yield replace(seen, after=chain.after)


def of_lines(lines: Sequence[Raw], *, about: float, rank: int | None, host: str = "") -> Iterator[Sighting]:
    """Yield the sightings of rules that any line may tell of, the first of each key; by the time in the line.

    What a program printed and then went on is a symptom at most: it may be a warning, or a failure that was retried.
    """
    seen: set[str] = set()
    for number, line in enumerate(lines):
        known = find(line.text)
        if known and known[0].key not in seen:
            rule, found = known
            seen.add(rule.key)
            after = None if _BY_SLURM.match(line.text) else ordinary_after(lines, number + 1)
            if rule.role == "cause" and after is not None and after > LONG:
                rule = replace(rule, role="symptom", sure="likely")
            time, whose = timestamps.time_of(line.text, about=about), line.rank if rank is None else rank
            yield replace(sighting(rule, found, evidence(line), time=time, rank=whose, host=host), after=after)


def abnormal(lines: Sequence[Raw]) -> tuple[Line, ...]:
    """Return the first lines that look like something wrong; the last ones where none does."""
    told = [line for line in lines if line.text.strip()]
    wrong = [line for line in told if any(word in line.text.lower() for word in _WORDS)]
    return tuple(map(evidence, wrong[:ABNORMAL] or told[-ABNORMAL:]))


def modified(path: Path) -> float | None:
    """Return when a file was last written, in seconds since 1970; None for one that is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def at(sightings: Sequence[Sighting], time: float | None) -> list[Sighting]:
    """Return the sightings, those without a time at this one."""
    return [replace(seen, time=time) if seen.time is None else seen for seen in sightings]
