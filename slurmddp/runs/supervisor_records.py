"""Reads the supervisor's events of a job: the parts of its batch log, and how the job ended."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Final

from slurmddp.exit_codes import FENCED
from slurmddp.runs.exit_records import ExitRecord, read_batch_record
from slurmddp.runs.files import open_or_empty
from slurmddp.runs.history import Event, parse_events
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import attempt_order

_KINDS: Final = frozenset({"attempt_start", "attempt_end", "requeue", "job_end", "fenced"})
_MARK: Final = re.compile(f'"event": "(?:{"|".join(sorted(_KINDS))})"'.encode())
_BLOCK_BYTES: Final = 2**20
_GOES_ON: Final = frozenset({"attempt_start", "requeue"})


@dataclass(frozen=True)
class LogPart:
    """The bytes of a batch log that belong to one attempt."""

    begin: int = 0
    end: int = sys.maxsize


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended, or its last attempt."""

    status: int
    """Of `slurmddp.exit_codes`; another number where no rank left a record, or a set-up line failed."""
    reason: str
    is_final: bool = True
    """Whether the job has ended; after an attempt it may continue."""


def read_supervision(run: RunDir, job_id: str) -> list[Event]:
    """Return the supervisor's events of a job, the oldest first; most lines of the file are not parsed."""
    with open_or_empty(run.events) as file:
        return parse_supervision(_marked_lines(file), job_id)


def _marked_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of the blocks that have an event of the supervisor; most blocks have only metrics."""
    while block := file.read(_BLOCK_BYTES) + file.readline():
        if _MARK.search(block):
            yield from block.split(b"\n")


def parse_supervision(lines: Iterable[bytes], job_id: str) -> list[Event]:
    """Return the supervisor's events of a job among these lines of JSON."""
    found = parse_events(line for line in lines if _MARK.search(line))
    return [event for event in found if event.kind in _KINDS and event.job == job_id]


def log_parts(events: Iterable[Event]) -> dict[str, LogPart]:
    """Return the part of a job's batch log of each attempt, up to where the next one begins."""
    starts = [event for event in events if event.kind == "attempt_start"]
    parts: dict[str, LogPart] = {}
    for start, following in pairwise([*starts, None]):
        if start:
            begin = max(0, start.count("log_offset"))
            parts[start.attempt] = LogPart(begin, following.count("log_offset") if following else sys.maxsize)
    return parts


def job_outcome(run: RunDir, job_id: str, events: Sequence[Event]) -> JobOutcome | None:
    """Return how a job ended, by its events; None when they do not tell, or when it continued."""
    if record := set_up_failure(run, job_id, events):
        return JobOutcome(record.status, record.reason)
    event = last_end(events)
    if event is None:
        return None
    status = FENCED if event.kind == "fenced" else event.count("status")
    return JobOutcome(status, event.text("reason"), is_final=event.kind != "attempt_end")


def set_up_failure(run: RunDir, job_id: str, events: Sequence[Event]) -> ExitRecord | None:
    """Return how a set-up line failed; None when none did, or when the job has a newer event."""
    record = read_batch_record(run.batch_record(job_id))
    return record if record and all(event.time <= record.time for event in events[-1:]) else None


def last_end(events: Iterable[Event]) -> Event | None:
    """Return the last event that can be a job's end; None when the job continued after it.

    An event of an earlier attempt, for example on a disconnected node, does not end the job.
    """
    end: Event | None = None
    newest: list[int] = []
    for event in events:
        if event.kind not in _KINDS or attempt_order(event.attempt) < newest:
            continue
        if event.kind == "attempt_start":
            newest = attempt_order(event.attempt)
        end = None if event.kind in _GOES_ON else event
    return end
