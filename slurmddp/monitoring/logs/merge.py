"""A job's output as lines, merged by time as far as that is known. Reads the files, a block at a time.

Attempts follow each other. Within an attempt, lines are ordered by their timestamps. A line without one stands behind
the line before it in its file; lines before the first timestamp stand at the attempt's beginning. Outputs without any
timestamp stand where one of them was last changed. The batch script's lines have timestamps; lines of srun between them
belong to the next one. Lines of the same time are ordered by rank.
"""

import heapq
import itertools
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from slurmddp.errors import UsageError
from slurmddp.monitoring.logs import log_files
from slurmddp.monitoring.logs.log_files import Source
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.files import modification_time
from slurmddp.runs.history import LogPart, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import READ_BYTES, GrowingFile, file_size, read_timestamp, start_of_tail
from slurmddp.slurm.job_info import JobRef

Told = Literal["line", "before", "after", "seen", ""]
"""Where the time of a line is from: the line, the line before or after it, or the moment it was read; empty without."""

LAST: Final = "last"
ALL: Final = "all"
ATTEMPT: Final = re.compile(r"[0-9]+\.[0-9]+")
BUDGET_BYTES: Final = 2**26
"""Memory for the blocks of all files together."""
_LEAST_BYTES: Final = 2**12
_CONTEXT_BYTES: Final = 2**16
"""So far before a tail the time of its first line is searched; less where there are many files."""
_HELD_LINES: Final = 1000
"""So many lines without a timestamp are kept, before the next line that has one or is wanted."""


class Line(NamedTuple):
    """A line as it is in its file, with its source and time."""

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
    """Whether the batch script's lines are wanted."""
    attempt: str = LAST
    """`0.0`, LAST or ALL."""
    chosen: Callable[[Path, bytes], bool] | None = None
    """Returns whether a line is wanted; called for each line of a file in order. None for all lines."""
    failed_first: bool = False
    """Whether the lines of the rank that failed first come before all others of its attempt."""
    ends: Mapping[Path, int] | None = None
    """Where to stop in each file; None for its end as it is found."""

    @cached_property
    def log_parts(self) -> Mapping[str, Mapping[str, LogPart]]:
        """The part of each attempt in the batch log, and in its file of errors, which costs a look at all events."""
        job = read_outline(self.run).of_job(self.job_id)
        return {".out": job.log_parts(), ".err": job.log_parts("errors_offset")}

    @cached_property
    def since(self) -> float:
        """No line was printed before the job was submitted, in seconds since 1970."""
        return modification_time(self.run.submitted_script(JobRef.parse(self.job_id).array_id)) or 0.0

    def attempts(self) -> list[str]:
        """Return the selected attempts, the oldest first. Raises UsageError for an attempt that does not exist."""
        known = self.run.attempts(self.job_id)
        if self.attempt == LAST:
            return known[-1:]
        if self.attempt not in (*known, ALL):
            some = f"its attempts are {', '.join(known)}" if known else "it has begun none"
            raise UsageError(f"job {self.job_id} has no attempt {self.attempt}; {some}")
        return known if self.attempt == ALL else [self.attempt]

    def sources(self, attempt: str) -> list[Source]:
        """Return the files of one attempt that are wanted.

        Raises UsageError for a rank that has none, when others have.
        """
        found = log_files.attempt_sources(self.run, self.job_id, attempt, self.ranks)
        missing: frozenset[int] = (self.ranks or frozenset()) - {source.number for source in found}
        if missing - {0} or (missing and not self.batch and self.run.training_marks.is_dir()):  # a script of one's own
            there = [source.number for source in log_files.attempt_sources(self.run, self.job_id, attempt, None)]
            known = f"the ranks print into the output of the script; type: slurmddp logs {self.job_id}"
            known = f"the last with output is {max(there)}" if there else known
            raise UsageError(f"rank {min(missing)} has no output in attempt {attempt} of job {self.job_id}; {known}")
        return found


def lines(wanted: Selection, tail: int | None = None) -> Iterator[Line]:
    """Yield the selected lines, or the last `tail` of them.

    Raises UsageError for an attempt or a rank that does not exist.
    """
    attempts = wanted.attempts() or [""]
    if tail is None:
        return (line for attempt in attempts for line in _attempt_lines(wanted, attempt, None))
    found: deque[Line] = deque()  # from as few of the last attempts as have them
    for attempt in reversed(attempts):
        found.extendleft(reversed(deque(_attempt_lines(wanted, attempt, tail), maxlen=tail - len(found))))
        if len(found) >= tail:
            break
    return iter(found)


_Timed = tuple[float, Line]
"""A line, and the time that it stands at in its attempt."""


def _attempt_lines(wanted: Selection, attempt: str, tail: int | None) -> Iterator[Line]:
    """Yield the lines of one attempt in order; with `tail` at least so many of the last."""
    found = wanted.sources(attempt) if attempt else []
    block = max(_LEAST_BYTES, min(READ_BYTES, BUDGET_BYTES // max(1, len(found))))
    untimed = [source for source in found if not _has_times(source, wanted.since, block // 4)]
    # a second earlier than the files say, since timestamps are often whole seconds
    changed = max((modification_time(source.path) or 0.0 for source in untimed), default=0.0) - 1.0
    places = dict.fromkeys(untimed, changed)
    streams = [_rank_lines(one, _read(wanted, one, block, tail), wanted, places.get(one, -math.inf)) for one in found]
    if wanted.batch:
        batch = log_files.batch_sources(wanted.run, wanted.job_id)
        streams += [_batch_lines(wanted, source, attempt, tail) for source in batch]
    records = read_records(wanted.run.attempt(wanted.job_id, attempt)) if wanted.failed_first else ()
    first = decisive_record(records)
    failed = first.rank if first and first.failed else -1

    def place(timed: _Timed) -> tuple[bool, float, tuple[bool, bool, int]]:
        return timed[1].source.rank != failed, timed[0], timed[1].source.order

    return (line for _, line in heapq.merge(*streams, key=place))


def _has_times(source: Source, since: float, limit: int) -> bool:
    """Return whether the first or the last bytes of an output have a timestamp."""
    reader, begins = _timestamp_reader(source, since), (0, max(0, file_size(source.path) - limit))
    texts = (text for begin in begins for text in GrowingFile(source.path, begin).read_lines(limit, rest=True))
    return any(reader(text) is not None for text in texts)


def _rank_lines(source: Source, rows: Iterable["_Row"], wanted: Selection, earliest: float) -> Iterator[_Timed]:
    """Yield the wanted lines of a rank, or of a launcher, each at its time, or at the `earliest` place.

    The timestamps of other lines are read only when a wanted line follows them.
    """
    reader, choose, at = _timestamp_reader(source, wanted.since), wanted.chosen, -math.inf
    skipped: deque[bytes] = deque(maxlen=_HELD_LINES)
    for row in rows:
        if not row.is_wanted or (choose and not choose(source.path, row.text)):
            skipped.append(row.text)
            continue
        at = max([at, *(time for text in skipped if (time := reader(text)) is not None)])
        skipped.clear()
        own_time = reader(row.text)
        at = at if own_time is None else max(at, own_time)
        told: Told = "line" if own_time is not None else "" if math.isinf(at) else "before"
        time = at if told == "before" else own_time
        yield max(at, earliest), Line(row.text, source, source.attempt, time, told, row.number)


def _batch_lines(wanted: Selection, source: Source, attempt: str, tail: int | None) -> Iterator[_Timed]:
    """Yield what the batch script printed in one attempt; a line without a timestamp has that of the next line.

    With the oldest attempt comes what was printed before it. A log of which no parts are known is shown whole, of all
    attempts with the oldest.
    """
    part = wanted.log_parts[source.path.suffix].get(attempt)
    begin, has_begun = part.begin if part else 0, not attempt
    is_oldest = wanted.run.attempts(wanted.job_id)[:1] in ([], [attempt])
    if part is None:
        part = LogPart() if is_oldest or wanted.attempt != ALL else LogPart(end=0)
    shown_from = 0 if is_oldest else part.begin
    reader, at, held = _timestamp_reader(source, wanted.since), -math.inf, deque[Line]()
    for row in _read(wanted, source, READ_BYTES, tail, part.end):
        if row.end <= shown_from:
            continue
        time = reader(row.text)
        if row.is_wanted:
            held.append(Line(row.text, source, attempt, time, "" if time is None else "line", row.number))
        if time is not None or len(held) > _HELD_LINES:
            at = at if time is None else max(at, time)
            yield from _release(wanted, held, at if has_begun else -math.inf, time)
        has_begun = has_begun or row.end > begin
    yield from _release(wanted, held, max(at, modification_time(source.path) or at), None)


def _release(wanted: Selection, held: deque[Line], at: float, time: float | None) -> Iterator[_Timed]:
    """Yield the wanted ones of the held lines, at this place; those without a time get that of the line after them."""
    while held:
        line = held.popleft()
        if wanted.chosen is None or wanted.chosen(line.source.path, line.text):
            yield at, line if line.time is not None or time is None else line._replace(time=time, told="after")


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
    end = min(end, file_size(source.path) if wanted.ends is None else wanted.ends.get(source.path, 0))
    begin = 0 if tail is None else start_of_tail(source.path, tail, end)
    file = GrowingFile(source.path, max(0, begin - min(_CONTEXT_BYTES, block // 4)), end)
    numbers = itertools.count(1) if file.at == 0 else itertools.repeat(0)
    while found := file.read_lines(block, rest=True):
        place = file.at - sum(map(len, found))
        for text, number in zip(found, numbers, strict=False):
            is_wanted = place >= begin
            place += len(text)
            yield _Row(number, text, is_wanted, place)


def _timestamp_reader(source: Source, since: float) -> Callable[[bytes], float | None]:
    """Return what reads a file's timestamps: from the job's submission to the file's last change."""
    changed = modification_time(source.path) or 0.0
    return partial(read_timestamp, near=changed, since=since, until=changed)
