"""Whether a job is of a run's folder, or of the one that this is a copy of. Reads the runs' files; asks nobody.

A folder that was moved keeps its jobs, a copy has none of them. The record of a submission has the folder's path and
its inode; when that path is gone, the inode tells a move from a copy.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions


@dataclass(frozen=True)
class Origin:
    """Where a job was submitted from."""

    name: str
    """What the job is called: as the folder was then."""
    elsewhere: Path | None = None
    """The folder whose job it is, where that is another one."""


def of(run: RunDir, record: Mapping[str, Any]) -> Origin:
    """Return where a job was submitted from that a run's folder (a sweep's, not a setting's) has on record."""
    folder = record.get("folder")
    if not isinstance(folder, str) or not folder or _is_same(home := Path(folder), run.path):
        return Origin(run.path.name)
    inode = record.get("inode")
    was_copied = inode is not None and inode != run.path.stat().st_ino
    return Origin(home.name, home if was_copied or _has(home, record) else None)


def _is_same(home: Path, path: Path) -> bool:
    with suppress(OSError, ValueError):  # a NUL byte in what is on record
        return home.samefile(path)
    return home == path


def _has(home: Path, record: Mapping[str, Any]) -> bool:
    """Whether a folder has the job on record; one that its job has made anew has not."""
    with suppress(OSError, ValueError):
        return any(known["job"] == record.get("job") for known in submissions(RunDir(home)))
    return False
