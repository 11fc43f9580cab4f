"""What a run writes down while it trains, read as it grows. Reads `events.jsonl`; asks nobody."""

import json
from collections.abc import Iterator
from typing import Final

from slurmddp.cli.watch.braille import Point
from slurmddp.monitoring.logs.tail import Growing
from slurmddp.runs.history import Event, History, number
from slurmddp.runs.layout import RunDir

_TAIL_BYTES: Final = 2**24
"""So much of a long run's events is read, the newest: some 80,000 records."""
_UNSHOWN: Final = frozenset({"metrics"})
"""Events that are drawn, and not told."""


class Record:
    """The events of one run, and curves of its numbers."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._events: list[Event] = []
        self._file = Growing(run.events, max(0, _size(run) - _TAIL_BYTES))

    def read(self) -> None:
        """Read what has been added."""
        if _size(self.run) < self._file.at:  # it was taken away, and begins anew
            self._file, self._events = Growing(self.run.events), []
        while lines := self._file.new():
            self._events += _events(lines)

    def of_job(self, job_id: str) -> History:
        """Return what is known of one job."""
        return History(tuple(event for event in self._events if event.job == job_id))

    def curve(self, name: str) -> tuple[Point, ...]:
        """Return a logged number over the steps of the whole run; a step that was taken again counts once."""
        points: list[Point] = []
        for event in self._events:
            values = event.fields.get("values") if event.kind == "metrics" else None
            value = number(values.get(name)) if isinstance(values, dict) else None
            if value is not None:
                step = event.count("step")
                while points and points[-1][0] >= step:
                    points.pop()
                points.append((step, value))
        return tuple(points)


def told(history: History) -> tuple[Event, ...]:
    """Return the events that people want to read, the oldest first."""
    return tuple(event for event in history.events if event.kind not in _UNSHOWN)


def _size(run: RunDir) -> int:
    try:
        return run.events.stat().st_size
    except FileNotFoundError:
        return 0


def _events(lines: list[bytes]) -> Iterator[Event]:
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # the torn line of a writer that was killed, or where a tail begins
            continue
        if isinstance(record, dict) and (event := Event.of(record)):
            yield event
