"""Reads the supervisor's events of a job: the parts of its batch log, and how the job ended."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Final

from slurmddp.runs.files import open_or_empty
from slurmddp.runs.history import Event, parse_events
from slurmddp.runs.layout import RunDir

_KINDS: Final = frozenset({"attempt_start", "attempt_end", "requeue", "job_end", "fenced"})
_MARK: Final = re.compile(f'"event": "(?:{"|".join(sorted(_KINDS))})"'.encode())
_BLOCK_BYTES: Final = 2**20


@dataclass(frozen=True)
class LogPart:
    """The bytes of a batch log that belong to one attempt."""

    begin: int = 0
    end: int = sys.maxsize


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
