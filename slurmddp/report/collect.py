"""The contents of the reports of runs, from their folders and what Slurm says of their jobs. Reads files; asks Slurm.

Programs that wrote the files may have been killed: lines that are incomplete or wrong are left out.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from slurmddp.diagnose.diagnosis import diagnose, diagnose_attempt
from slurmddp.diagnose.failures import find_failures
from slurmddp.diagnose.log_reader import read_lines
from slurmddp.diagnose.rule_types import NONE, UNKNOWN, Diagnosis
from slurmddp.errors import ClusterError
from slurmddp.monitoring import status
from slurmddp.monitoring.status import JobStatus
from slurmddp.monitoring.status.job_status import count_gpus, read_spec
from slurmddp.outcome import Kind, Outcome, Phase
from slurmddp.report.attempts import TimedAttempt
from slurmddp.report.curves import Logged, read_events
from slurmddp.report.figures import Figures, compute_figures
from slurmddp.report.timeline import Timeline, build_timeline
from slurmddp.runs.facts import Job, Run
from slurmddp.runs.files import TAIL_BYTES, json_value
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target, find_all_jobs, split
from slurmddp.submission.sweep import Result
from slurmddp.text import mask_secrets

MOST_CAUSES: Final = 20
"""How many of the attempts that failed are diagnosed."""
LAST_LINES: Final = 40
"""Of the rank that failed first."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run and all that its page shows, or with fewer fields what its row in a table of runs shows."""

    facts: Run
    written: float
    """When the report was made, in seconds since 1970."""
    submissions: tuple[Mapping[str, Any], ...]
    """The records of its jobs, the oldest first."""
    timeline: Timeline
    figures: Figures
    causes: Mapping[str, Diagnosis] = field(default_factory=dict)
    """Why attempts failed, by their labels, as far as that is known."""
    result: Result | None = None
    """Of a setting of a sweep."""
    statuses: Sequence[JobStatus] = ()
    command: str = ""
    """What each rank ran, without secrets."""
    settings: tuple[tuple[str, str, str], ...] = ()
    """The values of the job, without secrets: key, value, source (empty if it is not recorded)."""
    logged: Logged = field(default_factory=dict)
    """The values that the program logged."""
    diagnosis: Diagnosis | None = None
    """Why it failed; None if it did not, or if that is not known."""
    last_lines: tuple[str, ...] = ()
    """The last lines of the rank that failed first, without secrets."""

    @property
    def run(self) -> RunDir:
        """Its folder."""
        return self.facts.folder

    @property
    def name(self) -> str:
        """Its name as a person types it; of a sweep's setting, with that of the sweep."""
        return f"{self.run.job_name}/{self.run.path.name}" if self.run.sweep else self.run.path.name

    @property
    def attempts(self) -> tuple[TimedAttempt, ...]:
        """Its attempts, the oldest first."""
        return self.timeline.attempts

    @property
    def job(self) -> Job | None:
        """The job that runs or waits, else the one that ran last."""
        active = [job for job in self.facts.jobs if job.outcome.meaning.phase in ("running", "queued")]
        ran = [job for job in self.facts.jobs if self.attempts and job.job_id == self.attempts[-1].job_id]
        return next(iter(active or ran or self.facts.jobs[-1:]), None)

    @property
    def status(self) -> JobStatus | None:
        """The status of that job, with its progress; None of a row, and without a job of Slurm."""
        return next((one for one in self.statuses if self.job and one.job_id == self.job.job_id), None)

    @property
    def outcome(self) -> Outcome:
        """What the run has come to."""
        return self.job.outcome if self.job else Outcome(kind=Kind.UNKNOWN)

    @property
    def phase(self) -> Phase:
        """Where in its life the run is."""
        return self.outcome.meaning.phase


def collect_report(run: RunDir, environ: Mapping[str, str], *, now: float) -> Report:
    """Return the report of a run; if Slurm does not answer, from its files alone."""
    (history, logged), part, spec = read_events(run), find_all_jobs(run), read_spec(run)
    statuses = status.query_jobs([part], environ, now=now) if part.jobs else []
    report = replace(
        _collect_row(status.read_facts(run, statuses, history), part.records, now),
        statuses=statuses,
        command=_format_command(spec),
        settings=tuple(_list_settings(spec)),
        logged=logged,
    )
    unclear = (Kind.REQUEUED, Kind.UNKNOWN)
    wanted = [one for one in report.attempts if one.outcome.meaning.failed or one.outcome.kind in unclear]
    causes = {}
    for attempt in wanted[-MOST_CAUSES:]:  # by their own files
        if attempt.name in run.attempts(attempt.job_id):
            cause = diagnose_attempt(run, attempt.job_id, attempt.name, history.of_job(attempt.job_id).events)
            if cause.cause not in (UNKNOWN, NONE):
                causes[attempt.label] = _mask_secrets(cause)
    report = replace(report, causes=causes)
    if report.phase != "failed" or not report.job:
        return report
    with suppress(ClusterError):
        found = _mask_secrets(diagnose(run, report.job.job_id, environ))
        report = replace(report, diagnosis=found)
        if found.rank is not None and found.attempt:
            path = run.rank_log(found.job_id, found.attempt, found.rank)
            lines = read_lines(path, head=0, tail=TAIL_BYTES)[-LAST_LINES:]
            report = replace(report, last_lines=tuple(str(mask_secrets(line.text)) for line in lines))
    return report


def collect_rows(targets: Sequence[Target], environ: Mapping[str, str], since: float, now: float) -> list[Report]:
    """Return the rows of the runs that have recorded something since a time, or wait for their first start.

    A sweep is its settings. The newest run is the first.
    """
    rows, parts = [], [part for target in targets for part in split(target)]
    for part, facts in zip(parts, status.read_runs(parts, environ), strict=True):
        row = _collect_row(facts, part.records, now)
        if row.timeline.end >= since:
            found = [one.diagnosis for one in find_failures([facts], since=since, environ=environ)]
            rows.append(replace(row, causes={f"{one.job_id} {one.attempt}": _mask_secrets(one) for one in found}))
    return sorted(rows, key=lambda row: row.timeline.begin, reverse=True)


def _collect_row(facts: Run, records: Sequence[Mapping[str, Any]], now: float) -> Report:
    timeline = build_timeline(facts, records, now=now)
    figures = compute_figures(timeline, count_gpus(facts.folder))
    return Report(facts=facts, written=now, submissions=tuple(records), timeline=timeline, figures=figures)


def _mask_secrets(found: Diagnosis) -> Diagnosis:
    """Mask the secrets in a diagnosis: a set-up line may set a variable to one, and pages are sent to others."""
    if found.cause != "set-up-failed":
        return found
    lines = tuple(replace(line, text=mask_secrets(line.text)) for line in found.evidence)
    return replace(found, what=mask_secrets(found.what), evidence=lines)


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
    result = {"settings": report.result.values, "metrics": json_value(report.result.metrics)} if report.result else {}
    return {
        "name": report.run.path.name,
        "run": str(report.run.path),
        "phase": report.phase,
        "outcome": report.outcome.kind,
        "state": report.outcome.word,
        "jobs": [{"job_id": item["job"]} for item in report.submissions],
        "begin": report.timeline.begin,
        "end": report.timeline.end,
        **figures,
        **result,
        "steps": steps,
        "attempts": [_attempt_json(attempt, report.causes.get(attempt.label)) for attempt in report.attempts],
        "damage": list(report.facts.history.damage),
        "stragglers": [json_value(event.fields) for event in report.facts.history.all("straggler")],
        "findings": [json_value(event.fields) for event in report.facts.history.all("finding")],
    }


def _attempt_json(attempt: TimedAttempt, cause: Diagnosis | None) -> dict[str, Any]:
    steps, spans = attempt.progress, (*attempt.before, *attempt.spans)
    return {
        "job_id": attempt.job_id,
        "attempt": attempt.name,
        "begin": attempt.begin,
        "end": attempt.end,
        "outcome": attempt.outcome.kind,
        "reason": attempt.outcome.reason,
        "cause": cause.cause if cause else None,
        "steps": {"first": steps.first, "last": steps.last, "kept": attempt.kept} if steps else None,
        "spans": [{"kind": span.kind, "begin": span.begin, "seconds": span.seconds} for span in spans],
    }
