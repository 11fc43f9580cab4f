"""The timeline of a run that is known by its events alone."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from slurmddp.report.timeline import Timeline, build_timeline
from slurmddp.runs.facts import read_run
from slurmddp.runs.history import History
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo


def build(
    history: History,
    submitted: Mapping[str, float] | None = None,
    *,
    known: Mapping[str, JobInfo] | None = None,
    now: float,
) -> Timeline:
    """Return the timeline of a run that has these events and no other file."""
    run = read_run(RunDir(Path("/nonexistent")), known, history=history)
    times = {job: datetime.fromtimestamp(time, UTC) for job, time in (submitted or {}).items()}
    return build_timeline(run, [{"job": job, "time": time.isoformat()} for job, time in times.items()], now=now)
