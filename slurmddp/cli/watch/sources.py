"""What the screen shows: Slurm's answers, and what the files of a run say while it goes on. No terminal."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeVar

from slurmddp.background import run_in_background
from slurmddp.errors import UsageError
from slurmddp.monitoring import status
from slurmddp.monitoring.logs.merge import Selection, lines
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.monitoring.status.job_status import read_progress
from slurmddp.outcome import Phase
from slurmddp.runs import lookup
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.facts import Job, read_job
from slurmddp.runs.history import Event, History, read_newest
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import file_size
from slurmddp.text import clean_line

POLL_S: Final = 10.0
"""Seconds between two questions; sites throttle users who ask the controller more often."""
_ORDER: Final[Mapping[Phase, int]] = {"running": 0, "queued": 1, "unknown": 2}
_OUTPUT_LINES: Final = 2000
"""So many of the last lines of output can be read."""
_TAIL_BYTES: Final = 2**22
"""Of longer files of events only this many bytes at the end are read, some 17,000 records."""

Environ = Mapping[str, str]
Result = TypeVar("Result")
Point = tuple[float, float]
"""A step and its value."""


async def run_in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of `work`, done in a daemon thread: unlike Textual's threads, it does not delay the exit."""
    return await asyncio.shield(asyncio.wrap_future(run_in_background(partial(work, *arguments))))


def query(words: Sequence[str], runs_dir: str, environ: Environ) -> list[JobStatus]:
    """Ask Slurm for the jobs that the words name: running before pending before ended jobs, the newest first."""
    runs = [status.last_submission(target) for target in lookup.find(words, runs_dir)]
    targets = [setting for run in runs for setting in lookup.settings(run)]
    found = sorted(status.query_jobs(targets, environ), key=_sort_key)
    return list({job.job_id: job for job in found}.values())


def _sort_key(job: JobStatus) -> tuple[int, float]:
    moment = job.ended or job.started or job.submitted
    return _ORDER.get(job.phase, 3), -moment.timestamp() if moment else 0.0


class RunView(NamedTuple):
    """What a job's files say."""

    progress: Progress | None = None
    loss: tuple[Point, ...] = ()
    rate: tuple[Point, ...] = ()
    """Samples a second."""
    events: tuple[Event, ...] = ()
    output: tuple[str, ...] = ()
    """The last lines of one rank and the batch script, without control characters."""
    rank: int = 0
    """The rank whose output it is."""


def read_files(job: JobStatus, rank: int | None) -> RunView:
    """Return what the files of a job say, with the output of one rank; for None, of the one that matters."""
    if job.run is None:
        return RunView()
    try:
        events = _read_events(job.run, file_size(job.run.events))
        facts = read_job(job.run, job.job_id, job.slurm, silent=not job.outcome.final, history=events)
        rank = _find_rank(job.run, facts) if rank is None else rank
        wanted = Selection(run=job.run, job_id=job.job_id, ranks=frozenset({rank}))
        return RunView(
            progress=read_progress(job.run, facts, now=time.time()),
            loss=_curve(events.all("metrics"), "loss"),
            rate=_curve(events.all("metrics"), "samples_per_s"),
            events=tuple(event for event in facts.history.events if event.kind != "metrics"),
            output=tuple(clean_line(line.text).expandtabs() for line in lines(wanted, _OUTPUT_LINES)),
            rank=rank,
        )
    except (OSError, UsageError) as error:
        return RunView(progress=job.progress, output=(str(error),), rank=rank or 0)


def _find_rank(run: RunDir, job: Job) -> int:
    """Return the first rank that hangs, or that failed and ended the last attempt; else 0."""
    attempt = job.attempts[-1] if job.attempts else None
    hung = attempt.events.hang.fields.get("hung_ranks") if attempt and attempt.events.hang else None
    is_over = attempt and not hung and job.outcome.final
    record = decisive_record(read_records(run.attempt(job.job_id, attempt.name))) if attempt and is_over else None
    known = hung if isinstance(hung, list) else [record.rank] if record and record.failed else []
    return next((rank for rank in known if isinstance(rank, int) and rank >= 0), 0)


@lru_cache(maxsize=1)
def _read_events(run: RunDir, _size: int) -> History:
    """Return the newest events, which are read again when the file has another size."""
    return read_newest(run, size=_TAIL_BYTES)


def _curve(metrics: Iterable[Event], name: str) -> tuple[Point, ...]:
    """Return a metric over the steps of the whole run; of a repeated step the last value counts."""
    points: list[Point] = []
    for event in metrics:
        value = event.values.get(name)
        if value is not None:
            step = event.count("step")
            while points and points[-1][0] >= step:
                points.pop()
            points.append((step, value))
    return tuple(points)
