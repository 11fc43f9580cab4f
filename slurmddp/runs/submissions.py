"""The jobs of a run, a record each in `submissions.jsonl`: by `submit`, or by a job that was handed to sbatch by hand.

Standard library only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmddp.runs.layout import RunDir, append_record, read_records
from slurmddp.version import __version__


def submissions(run: RunDir) -> list[dict[str, Any]]:
    """Return the records of a run's jobs, the oldest first."""
    return [
        {**record, "job": job}
        for record in read_records(run.submissions)
        if (job := str(record.get("job", ""))).isdecimal() and job.isascii()
    ]


def settings_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings that a submission of a sweep has on record, one a task; none of any other."""
    given = record.get("settings")
    return given if isinstance(given, list) and all(isinstance(values, dict) for values in given) else []


def place_of(run: RunDir) -> dict[str, Any]:
    """Return where a job is submitted from, and what tells the run's folder from a copy of it."""
    return {"directory": str(Path.cwd()), "folder": str(run.path), "inode": run.path.stat().st_ino}


def is_being_submitted(run: RunDir) -> bool:
    """Tell whether a submission is under way, which will write its record itself."""
    return run.claim.exists()


def record_by_hand(run: RunDir, job: str, *, time: str, sha256: str | None) -> None:
    """Write down a job that was handed to sbatch by hand, so that `status` and others know it.

    `time` is when it was submitted, in ISO form; `sha256` is that of its script. Raises OSError.
    """
    record = {"time": time, "job": job, "cluster": "", "after": None, "sha256": sha256 or "", **place_of(run)}
    append_record(run.submissions, {**record, "version": __version__, "by_hand": True})
