"""All that the page of a run tells: from its folder, and what Slurm says of its jobs."""

import math
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from slurmddp.diagnose import NONE, UNKNOWN, Diagnosis, diagnose, of_attempt
from slurmddp.errors import ClusterError
from slurmddp.monitoring import status
from slurmddp.monitoring.status import JobStatus
from slurmddp.report import records
from slurmddp.report.attempts import Lap, Span
from slurmddp.report.downsample import Told, thinned
from slurmddp.report.goodput import Figures, figures
from slurmddp.report.records import Submission
from slurmddp.report.timeline import Timeline, build
from slurmddp.runs.history import Event, History
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target, of
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import Phase
from slurmddp.text import masked

WORKER: Final = "the bundled worker"

MOST_CAUSES: Final = 20
"""Of how many attempts it is looked up why they ended badly."""
_BAD: Final = frozenset({"crashed", "failed", "silent"})
_BY_OUTCOME: Final[Mapping[str, Phase]] = {
    "done": "done",
    "crashed": "failed",
    "failed": "failed",
    "fenced": "failed",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value of the job, with no secret in it, and where it came from."""

    key: str
    value: str
    origin: str
    """Empty where it is not on record."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run, as it was found."""

    run: RunDir
    written: float
    """When, in seconds since 1970."""
    submissions: tuple[Submission, ...]
    statuses: tuple[JobStatus, ...]
    command: str
    """What each rank ran, with no secret in it."""
    settings: tuple[Setting, ...]
    events: tuple[Event, ...]
    timeline: Timeline
    figures: Figures
    diagnosis: Diagnosis | None = None
    """Why it failed; None where it did not, or where nobody can tell."""
    causes: Mapping[str, Diagnosis] = field(default_factory=dict)
    """Why attempts ended badly, by their labels; without those of which it is not known."""

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Its attempts, the oldest first."""
        return self.timeline.laps

    @property
    def status(self) -> JobStatus | None:
        """The job by which the run is judged: one that runs or waits, else the one that ran last."""
        active = [job for job in self.statuses if job.phase in ("running", "queued")]
        ran = [job for job in self.statuses if self.laps and job.job_id == self.laps[-1].job]
        return next(iter(active or ran or self.statuses[-1:]), None)

    @property
    def phase(self) -> Phase:
        """Where in its life the run is: as Slurm says, else as its last attempt ended."""
        known = self.status.phase if self.status else "unknown"
        return _BY_OUTCOME.get(self.laps[-1].outcome, "unknown") if known == "unknown" and self.laps else known


def gather(run: RunDir, environ: Mapping[str, str], *, now: float) -> Report:
    """Return what there is to tell of a run; where Slurm does not answer, what its files tell."""
    found = _found(run, environ, now)
    found = replace(found, causes=dict(_causes(run, found)))
    if found.phase != "failed":
        return found
    job_id = found.status.job_id if found.status else found.laps[-1].job
    with suppress(ClusterError):
        return replace(found, diagnosis=_shareable(diagnose(run, job_id, environ)))
    return found


def _causes(run: RunDir, found: Report) -> Iterator[tuple[str, Diagnosis]]:
    """Yield of the last attempts that ended badly why they did, as their own files tell."""
    for lap in [lap for lap in found.laps if lap.outcome in _BAD][-MOST_CAUSES:]:
        if lap.name in run.attempts(lap.job):
            events = [event for event in found.events if event.job == lap.job]
            told = of_attempt(run, lap.job, lap.name, events)
            if told.cause not in (UNKNOWN, NONE):
                yield lap.label, _shareable(told)


def _shareable(found: Diagnosis) -> Diagnosis:
    """Return a diagnosis for a page that is mailed: a line of the set-up may give a variable its secret."""
    if found.cause != "set-up-failed":
        return found
    lines = tuple(replace(line, text=masked(line.text)) for line in found.evidence)
    return replace(found, what=masked(found.what), evidence=lines)


def _found(run: RunDir, environ: Mapping[str, str], now: float) -> Report:
    seen, submitted = _events(run), of(run).jobs
    told = History(seen.events)
    numbers = {job.partition("_")[0] for job in submitted}  # of a setting those of the sweep that it was in
    submissions = tuple(item for item in records.submitted(run) if item.job in numbers)
    statuses = tuple(status.look([Target(run, submitted)], environ, now=now)) if submitted else ()
    timeline = build(told, submissions, known={job.job_id: _known(job) for job in statuses}, now=now)
    laps = (replace(lap, tallies=seen.tallies.get((lap.job, lap.name), {})) for lap in timeline.laps)
    timeline = replace(timeline, laps=tuple(laps))
    spec = records.spec(run)
    return Report(
        run=run,
        written=now,
        submissions=submissions,
        statuses=statuses,
        command=_command(spec),
        settings=tuple(_settings(spec)),
        events=tuple(sorted(told.events, key=lambda event: event.time)),
        timeline=timeline,
        figures=figures(timeline),
    )


def _events(run: RunDir) -> Told:
    with suppress(FileNotFoundError), run.events.open("rb") as file:
        return thinned(file)
    return thinned(())


def _known(job: JobStatus) -> JobInfo:
    """Return what Slurm itself says of a job; of the files' times the events tell more, and copies have others."""
    told = JobInfo(job_id=job.job_id, state=job.state, source=job.source)
    return told if job.source == "files" else told._replace(started=job.started, ended=job.ended)


def _command(spec: Mapping[str, Any]) -> str:
    words = spec.get("command")
    if not isinstance(words, list) or not words:
        worker = spec.get("worker")
        return f"{WORKER}, task {worker.get('task')}" if isinstance(worker, dict) else ""
    return shlex.join(map(str, masked([_word(word) for word in words])))


def _word(word: Any) -> str:
    """Return a word of COMMAND; bytes that are no UTF-8 stand in spec.toml as their numbers."""
    if isinstance(word, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in word):  # noqa: PLR2004 a byte
        return bytes(word).decode("utf-8", "backslashreplace")
    return str(word)


def _settings(spec: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield the job's values, those that somebody has chosen first."""
    recorded = spec.get("recorded")
    origins = recorded.get("origins") if isinstance(recorded, dict) else None
    known = origins if isinstance(origins, dict) else {}
    keys = [key for key in spec if key not in ("command", "worker", "recorded")]
    for key in sorted(keys, key=lambda key: known.get(key) == "built-in"):
        yield Setting(key=key, value=_shown(key, spec[key]), origin=str(known.get(key, "")))
    worker = spec.get("worker")
    for key, value in worker.items() if isinstance(worker, dict) else ():
        yield Setting(key=f"worker.{key}", value=_shown(key, value), origin="")


def _shown(key: str, value: Any) -> str:
    safe = masked({key: value})[key]
    return "\n".join(map(str, safe)) if isinstance(safe, list) else _plain(safe)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_json(report: Report) -> dict[str, Any]:
    """Return the figures of a run, and what they were counted from."""
    found = report.figures
    return {
        "run": report.run.path.name,
        "phase": report.phase,
        "state": report.status.state if report.status else None,
        "jobs": [item.job for item in report.submissions],
        "begin": report.timeline.begin,
        "end": report.timeline.end,
        "wall_s": found.wall_s,
        "allocated_s": found.allocated_s,
        "seconds": dict(found.seconds),
        "goodput": found.goodput,
        "goodput_wall": found.goodput_wall,
        "steps": {"taken": found.steps_taken, "kept": found.steps_kept, "repeated": found.steps_repeated},
        "restarts": found.restarts,
        "requeues": found.requeues,
        "checkpoints": found.checkpoints,
        "attempts": [_lap_json(lap, report.causes.get(lap.label)) for lap in report.laps],
        "stragglers": [_finite(event.fields) for event in report.events if event.kind == "straggler"],
        "findings": [_finite(event.fields) for event in report.events if event.kind == "finding"],
    }


def _lap_json(lap: Lap, cause: Diagnosis | None) -> dict[str, Any]:
    return {
        "job": lap.job,
        "attempt": lap.name,
        "begin": lap.begin,
        "end": lap.end,
        "outcome": lap.outcome,
        "reason": lap.reason,
        "cause": cause.cause if cause else None,
        "steps": {"first": lap.climb.first, "last": lap.climb.last, "kept": lap.kept} if lap.climb else None,
        "spans": [_span_json(span) for span in (*lap.before, *lap.spans)],
    }


def _span_json(span: Span) -> dict[str, Any]:
    return {"kind": span.kind, "begin": span.begin, "seconds": span.seconds}


def _finite(value: Any) -> Any:
    """Return what an event holds as JSON can have it, a strange number as its text."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
