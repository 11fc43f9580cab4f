"""Reads the events of a run from `events.jsonl`, by job and attempt. Slurm is not asked.

The writers may have been killed: a record that was cut off, or has wrong values, is left out.
"""

from __future__ import annotations
import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from operator import attrgetter
from typing import Any, BinaryIO, Final, NamedTuple

from slurmddp.runs.files import LINE_BYTES, TAIL_BYTES, open_or_empty, parse_record, parse_records, read_or_empty
from slurmddp.runs.layout import EVENTS, RunDir
from slurmddp.text import count, format_duration

_WORDS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LARGEST: Final = 2**63
"""A larger whole number may not fit into a float."""
_LAST_TIME: Final = 1e11
"""Seconds since 1970 in the year 5138; what comes later is no time."""
_FREQUENT: Final = (b'"event": "metrics"', b'"event": "checkpoint"')
_FREQUENT_RECORD: Final = re.compile(rb'\{"time": [^\n,]{1,32}, "event": "(?:metrics|checkpoint)"[^\n]*')
MOST_FREQUENT: Final = 500_000
"""Of more metrics and checkpoints only some are read, in blocks that are spread evenly over the file."""
_BLOCK_BYTES: Final = 2**16
_OTHERS_BYTES: Final = 2**22
"""After so much of other events, or a line that is no record, only the last part of the file is read."""
_OTHER_COST: Final = 2**8
"""A line counts as so many bytes more than it has: a file may have millions of short ones."""
_LAST_BYTES: Final = 2**18
_MOST_DAMAGED: Final = 100
_TRAILING: Final = frozenset({"end", "attempt_end", "fenced", "checkpoint", "metrics", "hang", "hang_end", "usage"})
SUPERVISION: Final = frozenset({"attempt_start", "attempt_end", "requeue", "job_end", "fenced"})
_RECENT: Final = 64
_HEAD: Final = frozenset({"time", "event", "job", "attempt", "rank", "host"})


class Event(NamedTuple):
    """One record of `events.jsonl`: one of those of `slurmddp.runs.events` or `training_events`."""

    time: float
    """Seconds since 1970, by the clock of the node that wrote it."""
    kind: str
    job: str
    attempt: str
    fields: Mapping[str, Any]

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Event | None:
        """Return the event of a record; None for a record that is no event."""
        time, kind = number(record.get("time")), record.get("event")
        if not isinstance(kind, str) or time is None or isinstance(record["time"], str) or not 0 <= time < _LAST_TIME:
            return None
        own = {name: value for name, value in record.items() if name not in _HEAD}
        return cls(time, kind, str(record.get("job") or ""), str(record.get("attempt") or ""), own)

    def number(self, name: str) -> float | None:
        """Return a field that is a number, also `nan` and `inf`; None when it is not."""
        return number(self.fields.get(name))

    def count(self, name: str) -> int:
        """Return a field as a whole number; 0 when it is not a number."""
        value = self.number(name)
        return int(value) if value is not None and abs(value) < _LARGEST else 0

    @property
    def values(self) -> dict[str, float]:
        """The numbers that the program logged, by its own names; only metrics have any."""
        logged = self.fields.get("values")
        found = {name: number(value) for name, value in logged.items()} if isinstance(logged, dict) else {}
        return {name: value for name, value in found.items() if value is not None}

    def text(self, name: str) -> str:
        """Return a field that is a text; empty when it is not."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


class _Events(NamedTuple):
    """Some events, in the order in which they were written."""

    events: tuple[Event, ...]
    damage: tuple[str, ...] = ()
    """Lines that are no events, as in `events.jsonl: line 812 is cut off`."""
    is_whole: bool = True
    """Whether the oldest event of the run is among them."""

    def all(self, kind: str) -> list[Event]:
        """Return the events of one kind, the oldest first."""
        return [event for event in self.events if event.kind == kind]

    def last(self, kind: str) -> Event | None:
        """Return the newest event of one kind."""
        return next((event for event in reversed(self.events) if event.kind == kind), None)


class AttemptEvents(_Events):
    """The events of one start of a job's ranks; at least one."""

    @property
    def name(self) -> str:
        """`<SLURM_RESTART_COUNT>.<n>`; n counts the starts in one allocation."""
        return self.events[0].attempt

    @property
    def began(self) -> float:
        """Time of the first event, in seconds since 1970."""
        return self.events[0].time

    @property
    def seen(self) -> float:
        """Time of the last event, in seconds since 1970."""
        return self.events[-1].time

    @property
    def hang(self) -> Event | None:
        """The hang in which its ranks are, or were at their end; the supervisor judges it."""
        found = [event for event in self.events if event.kind in ("hang", "hang_end")]
        return found[-1] if found and found[-1].kind == "hang" else None


class LogPart(NamedTuple):
    """The bytes of a batch log that belong to one attempt."""

    begin: int = 0
    end: int = sys.maxsize


class History(_Events):
    """All events of a run, or its newest ones."""

    @cached_property
    def attempts(self) -> tuple[AttemptEvents, ...]:
        """The starts of its ranks, in the order of their first events in the file: a clock may be set back."""
        found: dict[tuple[str, str], list[Event]] = {}
        for event in filter(attrgetter("attempt"), self.events):  # the cancellation of a job before its start has none
            found.setdefault((event.job, event.attempt), []).append(event)
        return tuple(AttemptEvents(tuple(events)) for events in found.values())

    def of_job(self, job_id: str) -> History:
        """Return the events of one job of the run."""
        return History(tuple(self._by_job.get(job_id, ())), is_whole=self.is_whole) if self.events else self

    @cached_property
    def _by_job(self) -> Mapping[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.job, []).append(event)
        return found

    @property
    def supervision(self) -> list[Event]:
        """The events of the supervisor by which a job starts and ends."""
        return [event for event in self.events if event.kind in SUPERVISION]

    def log_parts(self, offset: str = "log_offset") -> dict[str, LogPart]:
        """Return the part of one job's batch log of each attempt, or of its file of errors by their `offset`."""
        starts = self.all("attempt_start")
        limits = [*(max(0, start.count(offset)) for start in starts), sys.maxsize]
        return {start.attempt: LogPart(*part) for start, part in zip(starts, zip(limits, limits[1:]))}

    @property
    def checkpoint_glob(self) -> str:
        """The glob of the checkpoints that the program writes by its own means (`--checkpoints`); empty without."""
        started = self.last("attempt_start")
        return started.text("checkpoints") if started else ""

    def decision(self) -> Event | None:
        """Return the newest event that is no metric, checkpoint or end: a start, a notice, a `cancel`."""
        return next((event for event in reversed(self.events) if event.kind not in _TRAILING), None)


def read_outline(run: RunDir) -> History:
    """Return a run's events without most metrics and checkpoints.

    Of these only the last few before each other event are read, and the newest checkpoint before it.

    They make up nearly all of a long run's gigabytes, so most blocks of the file are passed over whole. What is read
    has a bound, whatever the file has in it.
    """
    events, damage = list[Event](), list[str]()
    with open_or_empty(run.events, grows=True) as file:
        for number, line in _outline_lines(file):
            if line is None:
                damage.insert(0, f"{run.events.name}: line {number} and those behind it are not all read")
                continue
            record, wrong = parse_record(line)
            event = Event.parse(record) if record is not None else None
            if event:
                events.append(event)
            if wrong := wrong or ("is no event" if record is not None and event is None else ""):
                place = f"line {number}" if number else "a line near the end"
                damage.append(f"{run.events.name}: {place} {wrong}")
    return History(tuple(events), tuple(damage[:_MOST_DAMAGED]))


def read_frequent(run: RunDir) -> tuple[int, Iterator[Event]]:
    """Return how many metrics and checkpoints are about to be read, up to `MOST_FREQUENT`, and an iterator of them."""
    with open_or_empty(run.events, grows=True) as file:
        count = sum(block.count(kind) for block in _blocks(file) for kind in _FREQUENT)
    every = 1 + count // MOST_FREQUENT
    return count // every, _frequent_events(run, every)


def _frequent_events(run: RunDir, every: int) -> Iterator[Event]:
    with open_or_empty(run.events, grows=True) as file:
        for block in islice(_blocks(file), None, None, every):
            yield from parse_events(_FREQUENT_RECORD.findall(block))


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines, up to a line that is too long for a record, which is cut."""
    while block := file.read(_BLOCK_BYTES) + file.readline(LINE_BYTES):
        yield block
        if not block.endswith(b"\n"):
            return


def _outline_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield lines with their numbers, 0 for an unknown one; None is the line from which on some are left out."""
    recent: deque[tuple[int, bytes]] = deque(maxlen=_RECENT)
    saved = list[tuple[int, bytes]]()
    before, left = 0, _OTHERS_BYTES
    for block in _blocks(file):
        count, lines = block.count(b"\n"), block.removesuffix(b"\n").split(b"\n")
        if sum(map(block.count, _FREQUENT)) == count == len(lines):
            recent.extend(enumerate(lines[-_RECENT:], before + max(0, count - _RECENT) + 1))
            if _FREQUENT[1] in block:
                saved = [max(row for row in enumerate(lines, before + 1) if _FREQUENT[1] in row[1])]
        else:
            for number, line in enumerate(lines, before + 1):
                if any(kind in line for kind in _FREQUENT):
                    recent.append((number, line))
                    saved = [(number, line)] if _FREQUENT[1] in line else saved
                else:
                    yield from sorted({*saved, *recent, (number, line)})
                    recent.clear()
                    saved.clear()
                    left -= len(line) + _OTHER_COST
        before += count
        if left <= 0:
            break
    yield from sorted({*saved, *recent})
    at, last = file.tell(), file.seek(0, os.SEEK_END) - _LAST_BYTES
    file.seek(max(at, last))
    if at < last:
        yield before + 1, None
        file.readline()
    yield from ((0, line) for line in file.read(_LAST_BYTES).split(b"\n"))


def read_newest(run: RunDir, *, size: int = TAIL_BYTES) -> History:
    """Return the events in the last `size` bytes of the file: 64 KiB are enough for the progress of a run."""
    content = read_or_empty(f"{run.path}/{EVENTS}", size, grows=True)
    return History(tuple(parse_events(content.split(b"\n"))), is_whole=len(content) < size)


def number(value: object) -> float | None:
    """Return a number as JSON has it, or as its text where JSON has none; None for anything else."""
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        return _WORDS.get(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _LARGEST:
        return None
    return float(value)


def parse_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of lines of JSON; other lines are left out."""
    return (event for record in parse_records(lines) if (event := Event.parse(record)))


def describe_event(event: Event) -> str:
    """Return an event in words; empty for kinds that are no news to a person, as metrics."""
    describe = _DESCRIPTIONS.get(event.kind)
    return describe(event) if describe else ""


def describe_stop(notice: Event) -> str:
    """Return in words why Slurm has told the ranks to stop."""
    reason = notice.text("reason")
    return _STOPS.get(reason, reason)


def list_use(event: Event) -> list[tuple[str, str, list[float]]]:
    """Return ranks, hosts and numbers of a record of `usage`, the least busy GPU first; none of a wrong record."""
    with suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
        rows = [(rank, str(row[0]), [*map(float, row[1:])]) for rank, row in event.fields["ranks"].items()]
        if all(len(use) in (2, 6) and all(map(math.isfinite, use)) for _, _, use in rows):
            return sorted(rows, key=lambda row: row[2][2:])
    return []


def _describe_usage(event: Event) -> str:
    if rows := list_use(event):
        cpus, memory = (sum(one) / len(rows) for one in zip(*(use[:2] for _, _, use in rows)))
        host = f"{cpus:.1f} CPUs and {memory / 1e9:.1f} GB a rank"
        if not (gpus := [(use[2:], f"rank {rank} on {node}") for rank, node, use in rows if use[2:]]):
            return host
        busy, used, total, watts = (sum(one) / len(gpus) for one in zip(*(gpu for gpu, _ in gpus)))
        whose = f"that of {min(gpus)[1]} {min(gpus)[0][0]:.0%}"
        return f"GPUs {busy:.0%} busy ({whose}), {used / 1e9:.1f} of {total / 1e9:.0f} GB, {watts:.0f} W; {host}"
    return ""


_STOPS: Final = {
    "requeued": "by `scontrol requeue`, or a preemption without grace time",
    "signal": "a signal for which Slurm names no reason",
}
_DESCRIPTIONS: Final[Mapping[str, Callable[[Event], str]]] = {
    "attempt_start": lambda _: "the ranks are started",
    "attempt_end": lambda event: ": ".join(filter(None, ("the ranks have ended", event.text("reason")))),
    "loop": lambda _: "the first step begins",
    "hang_end": lambda _: "the ranks make progress again",
    "finding": lambda event: event.text("what"),
    "start": lambda event: (
        f"{event.count('world_size')} ranks on {count(event.count('nodes'), 'node')} finished the rendezvous"
    ),
    "resume": lambda event: f"resumed from step {event.count('step'):,}, {event.text('checkpoint')}",
    "checkpoint": lambda event: f"checkpoint of step {event.count('step'):,}",
    "straggler": lambda event: f"rank {event.count('slow_rank')} on {event.text('slow_host')} is slow",
    "hang": lambda event: f"no progress for {format_duration(event.number('stalled_s') or 0)}: {event.text('reason')}",
    "usage": _describe_usage,
    "notice": lambda event: f"stop signal received: {describe_stop(event)} ({event.text('cause')})",
    "requeue": lambda event: f"back into the queue: {event.text('reason')}",
    "fenced": lambda event: f"started no ranks: {event.text('reason')}",
    "job_end": lambda event: f"the job ended with status {event.count('status')}: {event.text('reason')}",
    "cancel": lambda event: f"cancelled by `slurmddp cancel` ({event.text('by')})",
    "restart": lambda event: f"restarted after status {event.count('status')}: {event.text('reason')}",
    "checkpoint-failed": lambda event: f"step {event.count('step'):,} could not be saved: {event.text('reason')}",
    "end": lambda event: f"rank 0 ended with status {event.count('status')}: {event.text('reason')}",
}
