"""What the files of a run say while it goes on: progress, curves, events, output. Slurm is not asked."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurmddp.cli.watch.curves import Point
from slurmddp.errors import UsageError
from slurmddp.monitoring.logs.merge import Selection, lines
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.monitoring.status.run_progress import metric, read_progress
from slurmddp.runs.facts import read_job
from slurmddp.runs.history import Event, History, parse_events
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import GrowingFile, file_size
from slurmddp.text import clean_line

_OUTPUT_LINES: Final = 2000
"""So many of the last lines of output can be read and searched."""
_TAIL_BYTES: Final = 2**24
"""Of longer files of events only this many bytes at the end are read, some 80,000 records."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What a job's files say."""

    progress: Progress | None = None
    loss: tuple[Point, ...] = ()
    rate: tuple[Point, ...] = ()
    """Samples a second."""
    events: tuple[Event, ...] = ()
    output: tuple[str, ...] = ()
    """The last lines of one rank and the batch script, without control characters."""


class RunReader:
    """Reads the files of runs, and of `events.jsonl` only what is new. Not for several threads at once."""

    def __init__(self) -> None:
        self._events: dict[Path, tuple[GrowingFile, list[Event]]] = {}

    def read(self, job: JobStatus, rank: int) -> RunView:
        """Return what the files of a job say, with the output of one rank."""
        if job.run is None:
            return RunView()
        try:
            events = self._read_events(job.run.events)
            facts = read_job(
                job.run, job.job_id, job.slurm, silent=not job.outcome.final, history=History(tuple(events))
            )
            return RunView(
                progress=read_progress(job.run, facts, now=time.time()),
                loss=_curve(events, "loss"),
                rate=_curve(events, "samples_per_s"),
                events=tuple(event for event in facts.history.events if event.kind != "metrics"),
                output=_read_output(job.run, job.job_id, rank),
            )
        except (OSError, UsageError) as error:
            return RunView(progress=job.progress, output=(str(error),))

    def _read_events(self, path: Path) -> list[Event]:
        size = file_size(path)
        file, events = self._events.get(path, (GrowingFile(path, max(0, size - _TAIL_BYTES)), []))
        if size < file.at:  # the file was removed or truncated
            file, events = GrowingFile(path), []
        while new := file.read_lines():
            events += parse_events(new)
        self._events[path] = file, events
        return events


def _curve(events: Iterable[Event], name: str) -> tuple[Point, ...]:
    """Return a metric over the steps of the whole run; of a repeated step the last value counts."""
    points: list[Point] = []
    for event in events:
        value = metric(event, name) if event.kind == "metrics" else None
        if value is not None:
            step = event.count("step")
            while points and points[-1][0] >= step:
                points.pop()
            points.append((step, value))
    return tuple(points)


def _read_output(run: RunDir, job_id: str, rank: int) -> tuple[str, ...]:
    wanted = Selection(run=run, job_id=job_id, ranks=frozenset({rank}), hosts=False)
    return tuple(clean_line(line.text).expandtabs() for line in lines(wanted, _OUTPUT_LINES))
