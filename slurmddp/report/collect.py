"""The contents of a run's report, from its folder and from what Slurm says of its jobs. Reads files; asks Slurm.

Programs that wrote the files may have been killed: lines that are incomplete or wrong are left out.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from slurmddp.diagnose.diagnosis import diagnose, diagnose_attempt
from slurmddp.diagnose.rule_types import NONE, UNKNOWN, Diagnosis
from slurmddp.errors import ClusterError
from slurmddp.monitoring import status
from slurmddp.monitoring.status import JobStatus
from slurmddp.monitoring.status.job_status import read_spec
from slurmddp.outcome import Kind, Outcome, Phase
from slurmddp.report.attempts import TimedAttempt
from slurmddp.report.curves import Logged, read_events
from slurmddp.report.figures import Figures, collect_timeline, compute_figures, count_gpus
from slurmddp.report.timeline import Timeline
from slurmddp.runs.files import TAIL_BYTES, json_value, open_or_empty
from slurmddp.runs.history import Event, History
from slurmddp.runs.layout import RunDir
from slurmddp.runs.log_tail import file_size
from slurmddp.runs.lookup import Target, find_all_jobs
from slurmddp.text import clean_line, mask_secrets

MOST_CAUSES: Final = 20
"""How many of the attempts that failed are diagnosed."""
LAST_LINES: Final = 40
"""Of the rank that failed first."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run and all that its page shows."""

    run: RunDir
    written: float
    """When the report was made, in seconds since 1970."""
    submissions: tuple[Mapping[str, Any], ...]
    """The records of its jobs, the oldest first."""
    statuses: tuple[JobStatus, ...]
    command: str
    """What each rank ran, without secrets."""
    settings: tuple[tuple[str, str, str], ...]
    """The values of the job, without secrets: key, value, source (empty if it is not recorded)."""
    events: tuple[Event, ...]
    logged: Logged
    """The values that the program logged."""
    timeline: Timeline
    figures: Figures
    diagnosis: Diagnosis | None = None
    """Why it failed; None if it did not, or if that is not known."""
    last_lines: tuple[str, ...] = ()
    """The last lines of the rank that failed first, without secrets."""
    causes: Mapping[str, Diagnosis] = field(default_factory=dict)
    """Why attempts failed, by their labels, as far as that is known."""

    @property
    def attempts(self) -> tuple[TimedAttempt, ...]:
        """Its attempts, the oldest first."""
        return self.timeline.attempts

    @property
    def status(self) -> JobStatus | None:
        """The status of the job that runs or waits, else of the one that ran last."""
        active = [job for job in self.statuses if job.phase in ("running", "queued")]
        ran = [job for job in self.statuses if self.attempts and job.job_id == self.attempts[-1].job_id]
        return next(iter(active or ran or self.statuses[-1:]), None)

    @property
    def damage(self) -> tuple[str, ...]:
        """Records of the run that were left out, as in `events.jsonl: line 812 is cut off`."""
        return self.status.progress.damage if self.status and self.status.progress else ()

    @property
    def outcome(self) -> Outcome:
        """What the run has come to: its newest job, or its last attempt on this machine."""
        if self.status:
            return self.status.outcome
        return self.attempts[-1].outcome if self.attempts else Outcome(kind=Kind.UNKNOWN)

    @property
    def phase(self) -> Phase:
        """Where in its life the run is."""
        return self.outcome.kind.phase


def collect_report(run: RunDir, environ: Mapping[str, str], *, now: float) -> Report:
    """Return the report of a run; if Slurm does not answer, from its files alone."""
    report = _collect_undiagnosed(run, environ, now)
    unclear = (Kind.REQUEUED, Kind.UNKNOWN)
    wanted = [one for one in report.attempts if one.outcome.kind.failed or one.outcome.kind in unclear]
    causes = {}
    for attempt in wanted[-MOST_CAUSES:]:  # by their own files
        if attempt.name in run.attempts(attempt.job_id):
            events = [event for event in report.events if event.job == attempt.job_id]
            cause = diagnose_attempt(run, attempt.job_id, attempt.name, events)
            if cause.cause not in (UNKNOWN, NONE):
                causes[attempt.label] = _mask_secrets(cause)
    report = replace(report, causes=causes)
    if report.phase != "failed":
        return report
    job_id = report.status.job_id if report.status else report.attempts[-1].job_id
    with suppress(ClusterError):
        found = _mask_secrets(diagnose(run, job_id, environ))
        report = replace(report, diagnosis=found)
        if found.rank is not None and found.attempt:
            path = run.rank_log(found.job_id, found.attempt, found.rank)
            with open_or_empty(path, grows=True) as log:
                log.seek(max(0, file_size(path) - TAIL_BYTES))
                lines = log.read(TAIL_BYTES).splitlines()[-LAST_LINES:]
            report = replace(report, last_lines=tuple(str(mask_secrets(clean_line(line))) for line in lines))
    return report


def _mask_secrets(found: Diagnosis) -> Diagnosis:
    """Mask the secrets in a diagnosis: a set-up line may set a variable to one, and pages are sent to others."""
    if found.cause != "set-up-failed":
        return found
    lines = tuple(replace(line, text=mask_secrets(line.text)) for line in found.evidence)
    return replace(found, what=mask_secrets(found.what), evidence=lines)


def _collect_undiagnosed(run: RunDir, environ: Mapping[str, str], now: float) -> Report:
    (events, logged), jobs = read_events(run), find_all_jobs(run).jobs
    statuses = tuple(status.query_jobs([Target(run, jobs)], environ, now=now)) if jobs else ()
    history = History(tuple(sorted(events, key=lambda event: event.time)))
    submitted, timeline = collect_timeline(run, statuses, history, now)
    spec = read_spec(run)
    return Report(
        run=run,
        written=now,
        submissions=submitted,
        statuses=statuses,
        command=_format_command(spec),
        settings=tuple(_list_settings(spec)),
        events=history.events,
        logged=logged,
        timeline=timeline,
        figures=compute_figures(timeline, count_gpus(spec)),
    )


def _format_command(spec: Mapping[str, Any]) -> str:
    words = spec.get("command")
    if not isinstance(words, list) or not words:
        worker = spec.get("worker")
        return f"the bundled worker, task {worker.get('task')}" if isinstance(worker, dict) else ""
    plain = []
    for word in words:  # spec.toml holds one that is not UTF-8 as a list of bytes
        with suppress(TypeError, ValueError):
            word = bytes(word).decode("utf-8", "backslashreplace") if isinstance(word, list) else word  # noqa: PLW2901
        plain.append(str(word))
    return shlex.join(map(str, mask_secrets(plain)))


def _list_settings(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the job's values, the built-in ones last."""
    recorded = spec.get("recorded")
    origins = recorded.get("origins") if isinstance(recorded, dict) else None
    known = origins if isinstance(origins, dict) else {}
    keys = [key for key in spec if key not in ("command", "worker", "recorded", "notify")]  # an address is a secret
    for key in sorted(keys, key=lambda key: known.get(key) == "built-in"):
        yield key, _format_value(key, spec[key]), str(known.get(key, ""))
    worker = spec.get("worker")
    for key, value in worker.items() if isinstance(worker, dict) else ():
        yield f"worker.{key}", _format_value(key, value), ""


def _format_value(key: str, value: Any) -> str:
    safe = mask_secrets({key: value})[key]
    if isinstance(safe, list):
        return "\n".join(map(str, safe))
    return str(safe).lower() if isinstance(safe, bool) else str(safe)


def make_json(report: Report) -> dict[str, Any]:
    """Return the figures of a run, and the attempts that they were counted from, as a value for JSON."""
    figures = asdict(report.figures)
    steps = {kind: figures.pop(f"steps_{kind}") for kind in ("taken", "kept", "repeated")}
    return {
        "run": report.run.path.name,
        "phase": report.phase,
        "outcome": report.outcome.kind,
        "state": report.status.state if report.status else None,
        "jobs": [item["job"] for item in report.submissions],
        "begin": report.timeline.begin,
        "end": report.timeline.end,
        **figures,
        "steps": steps,
        "attempts": [_attempt_json(attempt, report.causes.get(attempt.label)) for attempt in report.attempts],
        "damage": list(report.damage),
        "stragglers": [json_value(event.fields) for event in report.events if event.kind == "straggler"],
        "findings": [json_value(event.fields) for event in report.events if event.kind == "finding"],
    }


def _attempt_json(attempt: TimedAttempt, cause: Diagnosis | None) -> dict[str, Any]:
    return {
        "job": attempt.job_id,
        "attempt": attempt.name,
        "begin": attempt.begin,
        "end": attempt.end,
        "outcome": attempt.outcome.kind,
        "reason": attempt.outcome.reason,
        "cause": cause.cause if cause else None,
        "steps": {"first": attempt.progress.first, "last": attempt.progress.last, "kept": attempt.kept}
        if attempt.progress
        else None,
        "spans": [
            {"kind": span.kind, "begin": span.begin, "seconds": span.seconds}
            for span in (*attempt.before, *attempt.spans)
        ],
    }
