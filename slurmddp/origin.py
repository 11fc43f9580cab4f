"""Whether a job is of a run's folder, or of the one that this is a copy of. Reads the runs' files; asks nobody.

A folder that was moved keeps its jobs, a copy has none of them: the folder that a job was submitted from is in its
script, and what tells a move from a copy once that is gone is the folder's inode, written down with the submission.
"""

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slurmddp.handover import submissions
from slurmddp.rundir import RunDir

_HOME: Final = re.compile(rb"^DDPRUN_DIR=(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Origin:
    """Where a job was submitted from."""

    name: str
    """What the job is called: as the folder was then."""
    elsewhere: Path | None = None
    """The folder whose job it is, where that is another one."""


def of(run: RunDir, record: Mapping[str, Any]) -> Origin:
    """Return where a job was submitted from that a run's folder (a sweep's, not a setting's) has on record."""
    home = _home(run, record)
    if home is None or _is_same(home, run.path):
        return Origin(run.path.name)
    inode = record.get("inode")
    was_copied = inode is not None and inode != run.path.stat().st_ino
    return Origin(home.name, home if was_copied or _has(home, record) else None)


def _home(run: RunDir, record: Mapping[str, Any]) -> Path | None:
    """Return the folder that the job's script names, as it was from where it was submitted."""
    with suppress(OSError, ValueError):
        found = _HOME.search(run.submitted_script(str(record.get("job"))).read_bytes())
        words = shlex.split(found[1].decode()) if found else []
        return Path(str(record.get("directory", "")), words[0]) if words and record.get("directory") else None
    return None


def _is_same(home: Path, path: Path) -> bool:
    with suppress(OSError, ValueError):  # a NUL byte in what is on record
        return home.samefile(path)
    return home == path


def _has(home: Path, record: Mapping[str, Any]) -> bool:
    """Whether a folder has the job on record; one that its job has made anew has not."""
    with suppress(OSError, ValueError):
        return any(known["job"] == record.get("job") for known in submissions(RunDir(home)))
    return False
