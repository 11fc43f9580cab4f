"""What lies in a run's folder, beside its events. Reads files; asks nobody.

Written by programs that may have been killed: what is torn, or says a wrong thing, is left out.
"""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One job of the run, as it was handed to sbatch."""

    job: str
    time: float | None
    """Seconds since 1970."""
    commit: str = ""
    """Empty when the code was in no repository."""
    dirty: bool | None = None
    """Whether tracked files differed from it."""
    code: str = ""
    """The digest of the copy of its code; empty without one."""
    directory: str = ""
    version: str = ""
    """Of slurmddp."""


def submitted(run: RunDir) -> tuple[Submission, ...]:
    """Return the run's jobs, the oldest first."""
    return tuple(_submission(record) for record in submissions(run.sweep or run))


def spec(run: RunDir) -> dict[str, Any]:
    """Return the job as it was last submitted; empty when spec.toml cannot be read."""
    with suppress(OSError, ValueError):
        return tomllib.loads((run.sweep or run).spec.read_text("utf-8"))
    return {}


def _submission(record: Mapping[str, Any]) -> Submission:
    dirty = record.get("dirty")
    return Submission(
        job=str(record["job"]),
        time=_seconds(record.get("time")),
        commit=_text(record.get("commit")),
        dirty=dirty if isinstance(dirty, bool) else None,
        code=_text(record.get("code")),
        directory=_text(record.get("directory")),
        version=_text(record.get("version")),
    )


def _seconds(text: Any) -> float | None:
    with suppress(ValueError, TypeError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
