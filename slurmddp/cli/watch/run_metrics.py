"""The events and metrics of a run, read from `events.jsonl` while it grows."""

from typing import Final

from slurmddp.cli.watch.braille import Point
from slurmddp.monitoring.logs.tail import GrowingFile, file_size
from slurmddp.monitoring.status.run_progress import metric
from slurmddp.runs.history import Event, History, parse_events
from slurmddp.runs.layout import RunDir

_TAIL_BYTES: Final = 2**24
"""Of longer files only this many bytes at the end are read, some 80,000 records."""


class RunMetrics:
    """The events of one run, and curves of its metrics."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._events: list[Event] = []
        self._file = GrowingFile(run.events, max(0, file_size(run.events) - _TAIL_BYTES))

    def read(self) -> None:
        """Read new events."""
        if file_size(self.run.events) < self._file.at:  # the file was removed or truncated
            self._file, self._events = GrowingFile(self.run.events), []
        while lines := self._file.read_lines():
            self._events += parse_events(lines)

    def job_history(self, job_id: str) -> History:
        """Return the events of one job."""
        return History(tuple(event for event in self._events if event.job == job_id))

    def curve(self, name: str) -> tuple[Point, ...]:
        """Return a metric over the steps of the whole run; of a repeated step the last value counts."""
        points: list[Point] = []
        for event in self._events:
            value = metric(event, name) if event.kind == "metrics" else None
            if value is not None:
                step = event.count("step")
                while points and points[-1][0] >= step:
                    points.pop()
                points.append((step, value))
        return tuple(points)
