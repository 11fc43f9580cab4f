"""Reads and writes `submissions.jsonl`: one record for each job of a run, by `submit` or by the job itself.

By its record, a job belongs to a run's folder, or to the original that the folder is a copy of: a folder that was moved
keeps its jobs; a copy has none of them. Standard library only.
"""

from __future__ import annotations
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from slurmddp.runs.files import append_record, parse_records, read_or_empty
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobRef, is_job_id
from slurmddp.slurm.values import parse_moment
from slurmddp.version import __version__


class Origin(NamedTuple):
    """The folder that a job was submitted for."""

    name: str
    """The job's name in Slurm: in older records that of the folder at the submission; empty for an executor's job."""
    elsewhere: Path | None = None
    """The original folder, when the run's folder is a copy; else None."""


def submissions(run: RunDir) -> list[dict[str, Any]]:
    """Return the records of a run's jobs, the oldest first."""
    return parse_submissions(read_or_empty(run.submissions).splitlines())


def parse_submissions(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the records in the lines of a run's file, as `submissions`."""
    return [
        {**record, "job": job}
        for record in parse_records(lines)
        if (job := str(record.get("job", ""))).isdecimal() and job.isascii()
    ]


def last_time(records: Iterable[Mapping[str, Any]]) -> datetime:
    """Return when the newest of these jobs was submitted; the year 1 if that is not known."""
    times = [parse_moment(record.get("time")) for record in records]
    return max(filter(None, times), default=datetime.min.replace(tzinfo=timezone.utc))


def settings_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings in the record of a sweep, one for each task; none in other records."""
    given = record.get("settings")
    return given if isinstance(given, list) and all(isinstance(values, dict) for values in given) else []


def folder_identity(run: RunDir) -> dict[str, Any]:
    """Return the working directory, and the path and inode by which a copy of the run's folder is recognized."""
    return {"directory": str(Path.cwd()), "folder": str(run.path), "inode": run.path.stat().st_ino}


def record_direct_submission(run: RunDir, job: str, *, time: str, sha256: str | None, name: str = "") -> None:
    """Record a job whose script a person passed to sbatch directly, so that `status` knows it.

    `time` is when it was submitted, in ISO form; `sha256` is that of its script. Raises OSError.
    """
    record = {"time": time, "job": job, "cluster": "", "after": None, "sha256": sha256 or "", **folder_identity(run)}
    append_record(run.submissions, {**record, "name": name, "version": __version__, "by_hand": True})


def read_origin(run: RunDir, record: Mapping[str, Any]) -> Origin:
    """Return the origin of a job by its record in the run's folder; for a setting, in the sweep's folder."""
    folder, name = record.get("folder"), str(record.get("name") or "")
    home = Path(folder) if isinstance(folder, str) and folder not in ("", str(run.path)) else run.path
    name = name or ("" if is_job_id(home.name) else home.name)  # only the folder of an executor's job is named so
    is_here = home is run.path or home == run.path or record.get("inode") in (None, run.path.stat().st_ino)
    return Origin(name, None if is_here else home)


def slurm_name(run: RunDir, job_id: str) -> str:
    """Return the name in Slurm of a run's job, which differs from that of the folder where a batch script gives one."""
    home, number = run.sweep or run, JobRef.parse(job_id).array_id
    return read_origin(home, next((one for one in reversed(submissions(home)) if one["job"] == number), {})).name
