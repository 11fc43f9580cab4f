"""The checkpoints of a run: those of slurmddp, and those that the program writes by its own means. Reads folders."""

from __future__ import annotations
import glob
import os
import re
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.runs.layout import MANIFEST, RunDir

_STEP: Final = re.compile(r"step-[0-9]{9}")


class ProgramCheckpoint(NamedTuple):
    """A file or a folder that the program has written."""

    saved_at: float
    """Seconds since 1970."""
    path: str
    """As the glob gives it: relative to the working directory where the glob is."""

    def __str__(self) -> str:
        """Return its path and time, which differ from those of an earlier one in the same file."""
        return f"{self.path} of {datetime.fromtimestamp(self.saved_at, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def newest_program_checkpoint(pattern: str) -> ProgramCheckpoint | None:
    """Return the newest match of the glob; None without one. A folder is as new as the newest file directly in it."""
    found = []
    for path in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - keeps the path as the pattern has it
        with suppress(OSError):  # the program may remove an old one meanwhile
            files = Path(path).iterdir() if Path(path).is_dir() else ()
            found.append(ProgramCheckpoint(max(file.stat().st_mtime for file in (Path(path), *files)), path))
    return max(found, default=None)


def newest_checkpoint(run: RunDir) -> Path | None:
    """Return the whole checkpoint of the highest step; None without one, and when the folder cannot be read."""
    with suppress(OSError):
        folder = run.checkpoints
        names = sorted(filter(_STEP.fullmatch, os.listdir(folder)), reverse=True)  # noqa: PTH208 - paths take longer
        return next((folder / name for name in names if (folder / name / MANIFEST).is_file()), None)
    return None


def newest_in_folder(run: RunDir) -> ProgramCheckpoint | None:
    """Return the newest file or folder in the run's folder of checkpoints that is not one of slurmddp's own steps."""
    paths = (path for path in run.checkpoints.glob("*") if not path.name.startswith(("step-", ".", "broken-")))
    found = (newest_program_checkpoint(glob.escape(str(path))) for path in paths)
    return max(filter(None, found), default=None)


def read_progress_mark(run: RunDir, pattern: str = "", job_id: str = "") -> str:
    """Return what a run has saved, as a text that differs after each newer checkpoint; `none` without one.

    `pattern` is the glob of the checkpoints that the program writes by its own means, which count first; else
    slurmddp's own steps do, else what the program has written into the run's folder of checkpoints, else what its ranks
    have noted in the attempts of the job.
    """
    if pattern and (own := newest_program_checkpoint(pattern)):
        return str(own)
    newest = newest_checkpoint(run)
    return newest.name if newest else str(newest_in_folder(run) or _newest_save(run, job_id) or "none")


def _newest_save(run: RunDir, job_id: str) -> str:
    """Return when a program in the attempts of a job has saved something last; empty for never."""
    pattern = run.program_save(glob.escape(job_id), "*")
    newest = newest_program_checkpoint(f"{glob.escape(str(run.path))}/{pattern.relative_to(run.path)}")
    return f"one of the program, {str(newest).rpartition(' of ')[2]}" if newest else ""


def has_checkpoint(run: RunDir, pattern: str) -> bool:
    """Return whether the run's folder for checkpoints has anything in it, or the program has written a match."""
    own = run.checkpoints.iterdir() if run.checkpoints.is_dir() else ()
    return any(own) or bool(pattern and newest_program_checkpoint(pattern))
