"""What lies in a run's folder, beside its events. Reads files; asks nobody.

Written by programs that may have been killed: what is torn, or says a wrong thing, is left out.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from slurmddp.handover import submissions
from slurmddp.rundir import RunDir

_SAID: Final = re.compile(
    rb"(\d{4}-\d\d-\d\dT[\d:]{8}[+-]\d{4}) slurmddp: job (\S+), attempt (\d+\.\d+), "
    rb"(?:on (\S+), output|ended with status (\d{1,9}): ?(.*))"
)
"""What templates/base.sbatch.j2 and ending.j2 say when they start the ranks, and when these have ended."""
_REQUEUED: Final = re.compile(r"\S+ (\d{1,9})", re.ASCII)


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


@dataclass(frozen=True, kw_only=True)
class Said:
    """A line of the batch script: the ranks of an attempt are started, or have ended."""

    time: float
    """Seconds since 1970, whole ones."""
    job: str
    attempt: str
    hosts: str = ""
    """The host list on which they are started; empty when they have ended."""
    status: int | None = None
    """Of `slurmddp.outcome`; None when they are started."""
    reason: str = ""


def submitted(run: RunDir) -> tuple[Submission, ...]:
    """Return the run's jobs, the oldest first."""
    return tuple(_submission(record) for record in submissions(run.sweep or run))


def said(run: RunDir, jobs: Iterable[str]) -> tuple[Said, ...]:
    """Return what the batch scripts of these jobs said of their attempts, in the order of their lines."""
    return tuple(line for job in jobs for line in _lines(run, job))


def lived(run: RunDir, job: str) -> tuple[float, ...]:
    """Return how many seconds a job had run at each of the times when it put itself back into the queue."""
    with suppress(OSError):
        lines = run.requeues(job).read_text("utf-8", "replace").splitlines()
        return tuple(float(match[1]) for line in lines if (match := _REQUEUED.fullmatch(line)))
    return ()


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


def _lines(run: RunDir, job: str) -> Iterator[Said]:
    with suppress(OSError), run.batch_log(job).open("rb") as file:
        for line in file:
            match = _SAID.match(line)
            if match and (time := _seconds(match[1].decode("ascii"))) is not None:
                yield _line(time, match)


def _line(time: float, match: re.Match[bytes]) -> Said:
    _, job, attempt, hosts, status, reason = ((part or b"").decode("utf-8", "replace") for part in match.groups())
    return Said(
        time=time,
        job=job,
        attempt=attempt,
        hosts=hosts,
        status=int(status) if status else None,
        reason=reason,
    )


def _seconds(text: Any) -> float | None:
    with suppress(ValueError, TypeError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
