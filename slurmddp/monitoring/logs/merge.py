"""A job's output as lines, merged by time as far as that is known. Reads the files, a block at a time.

Attempts follow each other. Within one, a line stands where it says that it was printed; one that does not say stands
with the line before it in its file, and what comes before any such line at the attempt's beginning. The batch
script stamps its lines; what srun says between them belongs to the one after it. What is left is told apart by rank.
"""

import heapq
import itertools
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, NamedTuple

from slurmddp.errors import UsageError
from slurmddp.monitoring.logs import log_files
from slurmddp.monitoring.logs.log_files import Source
from slurmddp.monitoring.logs.tail import READ_BYTES, Growing, start_of_tail
from slurmddp.monitoring.logs.timestamps import Stamps
from slurmddp.runs.layout import RunDir
from slurmddp.runs.supervision import LogPart, log_parts, read_supervision

Told = Literal["line", "before", "after", "seen", ""]
"""What tells a line's time: itself, the nearest stamped line before or after it, its reader; nothing."""

LAST: Final = "last"
ALL: Final = "all"
ATTEMPT: Final = re.compile(r"[0-9]+\.[0-9]+")
BUDGET_BYTES: Final = 2**26
"""So much of all files together is held at a time."""
_LEAST_BYTES: Final = 2**12
_LOOK_BACK_BYTES: Final = 2**16
"""A tail's first line may have its time from so far before it; from less where there are many files."""
_HELD_LINES: Final = 1000
"""So many lines wait for the batch script's next one; and so many before a wanted line may tell its time."""


class Line(NamedTuple):
    """A line as it is in its file, and what is known of it."""

    text: bytes
    """With its end, unless it is a file's last and has none."""
    source: Source
    attempt: str
    time: float | None = None
    """Seconds since 1970."""
    told: Told = ""
    number: int = 0
    """Of the line in its file, from 1; 0 where the file was not read from its beginning."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of a job's output is wanted."""

    run: RunDir
    job_id: str
    ranks: frozenset[int] | None = frozenset({0})
    """None for all, and for their launchers."""
    batch: bool = True
    """Whether the batch script's words are wanted."""
    attempt: str = LAST
    """`0.0`, LAST or ALL."""
    hosts: bool = True
    """Whether it is wanted on which host each rank ran, which costs a look at all events."""
    chosen: Callable[[Path, bytes], bool] | None = None
    """Tells which lines are wanted; asked of each line of a file, in their order. None for all."""
    ends: Mapping[Path, int] | None = None
    """Where to stop in each file; None for its end as it is found."""

    @cached_property
    def log_parts(self) -> Mapping[str, LogPart]:
        """The part of the batch log of each attempt, which costs a look at all events; empty for runs before 0.2."""
        return log_parts(read_supervision(self.run, self.job_id))

    @cached_property
    def since(self) -> float:
        """No line was printed before the job was submitted, in seconds since 1970."""
        return _changed(self.run.submitted_script(self.job_id.partition("_")[0])) or 0.0

    def attempts(self) -> list[str]:
        """Return the attempts that are meant, the oldest first. Raises UsageError for one that there is not."""
        known = self.run.attempts(self.job_id)
        if self.attempt == LAST:
            return known[-1:]
        if self.attempt not in (*known, ALL):
            some = f"there are {', '.join(known)}" if known else "it has begun none"
            raise UsageError(f"job {self.job_id} has no attempt {self.attempt}; {some}")
        return known if self.attempt == ALL else [self.attempt]

    def of(self, attempt: str) -> list[Source]:
        """Return the files of one attempt that are wanted.

        Raises UsageError for a rank that has none, when others have.
        """
        found = log_files.of_attempt(self.run, self.job_id, attempt, self.ranks, hosts=self.hosts)
        missing: frozenset[int] = (self.ranks or frozenset()) - {source.number for source in found} - {0}
        if missing:
            there = [
                source.number for source in log_files.of_attempt(self.run, self.job_id, attempt, None, hosts=False)
            ]
            known = f"the last with output is {max(there)}" if there else "none has printed anything"
            raise UsageError(f"rank {min(missing)} has no output in attempt {attempt} of job {self.job_id}; {known}")
        return found


def lines(wanted: Selection, tail: int | None = None) -> Iterator[Line]:
    """Yield what there is, or its last lines.

    Raises UsageError for an attempt or a rank that there is not.
    """
    attempts = wanted.attempts() or [""]
    if tail is None:
        return (line for attempt in attempts for line in _of_attempt(wanted, attempt, None))
    return iter(_last(wanted, attempts, tail))


def last(found: Iterable[Line], count: int | None) -> Iterable[Line]:
    """Return the last `count` lines, or all for None."""
    return found if count is None else deque(found, maxlen=count)


def _last(wanted: Selection, attempts: Sequence[str], tail: int) -> Iterable[Line]:
    """Return the last lines, from as few of the last attempts as have them."""
    found: deque[Line] = deque()
    for attempt in reversed(attempts):
        found.extendleft(reversed(deque(_of_attempt(wanted, attempt, tail), maxlen=tail - len(found))))
        if len(found) >= tail:
            break
    return found


_Timed = tuple[float, Line]
"""A line, and the time that it stands at in its attempt."""


def _of_attempt(wanted: Selection, attempt: str, tail: int | None) -> Iterator[Line]:
    """Yield the lines of one attempt in order; with `tail` at least so many of the last."""
    found = wanted.of(attempt) if attempt else []
    block = max(_LEAST_BYTES, min(READ_BYTES, BUDGET_BYTES // max(1, len(found))))
    streams = [_of_ranks(source, _read(wanted, source, block, tail), wanted) for source in found]
    if wanted.batch:
        streams.append(_of_batch(wanted, attempt, tail))
    return (line for _, line in heapq.merge(*streams, key=_key))


def _key(timed: _Timed) -> tuple[float, tuple[bool, bool, int]]:
    return timed[0], timed[1].source.order


def _of_ranks(source: Source, rows: Iterable["_Row"], wanted: Selection) -> Iterator[_Timed]:
    """Yield the lines of a rank, or of a launcher, each at its time; most that are not wanted are not looked at."""
    stamps, at, chosen = _stamps(source, wanted.since), -math.inf, wanted.chosen
    passed: deque[bytes] = deque(maxlen=_HELD_LINES)
    for number, text, is_wanted, _ in rows:
        if not is_wanted or (chosen and not chosen(source.path, text)):
            passed.append(text)
            continue
        at = max([at, *(told for line in passed if (told := stamps.of(line)) is not None)])
        passed.clear()
        told = stamps.of(text)
        if told is not None:
            at = max(at, told)
            yield at, Line(text, source, source.attempt, told, "line", number)
        else:
            known = at > -math.inf
            yield at, Line(text, source, source.attempt, at if known else None, "before" if known else "", number)


def _of_batch(wanted: Selection, attempt: str, tail: int | None) -> Iterator[_Timed]:
    """Yield what the batch script printed in one attempt, what is not stamped with what comes next."""
    source, part = log_files.batch(wanted.run, wanted.job_id), _log_part(wanted, attempt)
    stamps, at, held = _stamps(source, wanted.since), -math.inf, deque[Line]()
    begin, begun = wanted.log_parts.get(attempt, LogPart()).begin, not attempt
    for row in _read(wanted, source, READ_BYTES, tail, part.end):
        if row.end <= part.begin:
            continue
        told = stamps.of(row.text)
        if row.is_wanted:
            held.append(Line(row.text, source, attempt, told, "" if told is None else "line", row.number))
        if told is not None or len(held) > _HELD_LINES:
            at = at if told is None else max(at, told)
            yield from _chosen(wanted, _placed(held, at if begun else -math.inf, told))
        begun = begun or row.end > begin
    yield from _chosen(wanted, _placed(held, math.inf, None))


def _log_part(wanted: Selection, attempt: str) -> LogPart:
    """Return what is shown of the batch log with one attempt: with the oldest also what comes before it.

    A log of which no parts are known is shown whole, of all attempts with the oldest.
    """
    is_oldest = wanted.run.attempts(wanted.job_id)[:1] in ([], [attempt])
    part = wanted.log_parts.get(attempt)
    if part is None:
        return LogPart() if is_oldest or wanted.attempt != ALL else LogPart(end=0)
    return LogPart(0, part.end) if is_oldest else part


def _chosen(wanted: Selection, found: Iterable[_Timed]) -> Iterator[_Timed]:
    choose = wanted.chosen
    return (timed for timed in found if choose is None or choose(timed[1].source.path, timed[1].text))


def _placed(held: deque[Line], at: float, told: float | None) -> Iterator[_Timed]:
    while held:
        line = held.popleft()
        yield at, line if line.time is not None or told is None else line._replace(time=told, told="after")


class _Row(NamedTuple):
    """A line of a file, as it is read."""

    number: int
    """0 where it is not known."""
    text: bytes
    is_wanted: bool
    """Whether it is more than the context of a tail."""
    end: int
    """Bytes of the file up to its end."""


def _read(wanted: Selection, source: Source, block: int, tail: int | None, end: int = sys.maxsize) -> Iterator[_Row]:
    end = min(end, _size(source.path) if wanted.ends is None else wanted.ends.get(source.path, 0))
    begin = 0 if tail is None else start_of_tail(source.path, tail, end)
    file = Growing(source.path, max(0, begin - min(_LOOK_BACK_BYTES, block // 4)), end)
    place, numbers = file.at, itertools.count(1) if file.at == 0 else itertools.repeat(0)
    while found := file.new(block, rest=True):
        for text, number in zip(found, numbers, strict=False):
            is_wanted = place >= begin
            place += len(text)
            yield _Row(number, text, is_wanted, place)


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _changed(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _stamps(source: Source, since: float) -> Stamps:
    """Return the reader of a file's stamps: those between the job's submission and the file's last change."""
    return Stamps(since=since, until=_changed(source.path))
