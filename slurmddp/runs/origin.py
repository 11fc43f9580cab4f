"""Tells whether a job belongs to a run's folder, or to the original that the folder is a copy of. Reads files only.

A folder that was moved keeps its jobs; a copy has none of them. The record of a submission has the folder's path and
inode; when that path is gone, the inode shows whether the folder was moved or copied.
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
    """The folder that a job was submitted for."""

    name: str
    """The job's name: the folder's name at the submission."""
    elsewhere: Path | None = None
    """The original folder, when the run's folder is a copy; else None."""


def read_origin(run: RunDir, record: Mapping[str, Any]) -> Origin:
    """Return the origin of a job by its record in the run's folder; for a setting, in the sweep's folder."""
    folder = record.get("folder")
    if not isinstance(folder, str) or not folder or _is_same(home := Path(folder), run.path):
        return Origin(run.path.name)
    inode = record.get("inode")
    was_copied = inode is not None and inode != run.path.stat().st_ino
    return Origin(home.name, home if was_copied or _has(home, record) else None)


def _is_same(home: Path, path: Path) -> bool:
    with suppress(OSError, ValueError):  # the record has a NUL byte
        return home.samefile(path)
    return home == path


def _has(home: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a folder has the job on record; a folder that the job itself made has not."""
    with suppress(OSError, ValueError):
        return any(known["job"] == record.get("job") for known in submissions(RunDir(home)))
    return False
