"""The checkpoints of a run: those of slurmddp, and those that the program writes by its own means. Reads folders."""

from __future__ import annotations
import glob
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.runs.layout import IDENTITY, MANIFEST, SURVIVED, RunDir

_STEP: Final = re.compile(r"step-[0-9]{9}")


class Checkpoint(NamedTuple):
    """One of slurmddp's steps, or a file or a folder that the program has written."""

    saved_at: float
    """Seconds since 1970."""
    path: str
    """Of a program's, as the glob gives it: relative to the working directory where the glob is."""
    step: int | None = None
    """None for what the program has written by its own means."""

    def __str__(self) -> str:
        """Return what differs from an earlier one in the same file: its path and time; the name of a step."""
        if self.step is not None:
            return Path(self.path).name
        return f"{self.path} of {datetime.fromtimestamp(self.saved_at, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def newest_program_checkpoint(pattern: str) -> Checkpoint | None:
    """Return the newest match of the glob; None without one. A folder is as new as the newest file directly in it."""
    return _newest(glob.iglob(pattern, recursive=True))  # noqa: PTH207 - keeps the path as the pattern has it


def _newest(paths: Iterable[str]) -> Checkpoint | None:
    found = []
    for path in paths:
        with suppress(OSError):  # the program may remove an old one meanwhile
            files = Path(path).iterdir() if Path(path).is_dir() else ()
            found.append(Checkpoint(max(file.stat().st_mtime for file in (Path(path), *files)), path))
    return max(found, default=None)


def find_saved(run: RunDir, pattern: str) -> Checkpoint | None:
    """Return the checkpoint from which a run goes on; None without one.

    `pattern` is the glob of the checkpoints that the program writes by its own means, which count first; else
    slurmddp's own steps do, else what ranks that survived have saved, which the next start takes in, else what the
    program has written into the run's folder of checkpoints.
    """
    if pattern and (own := newest_program_checkpoint(pattern)):
        return own
    with suppress(OSError):
        names = os.listdir(folder := run.checkpoints)  # noqa: PTH208 - paths take longer
        steps = sorted(filter(_STEP.fullmatch, names), reverse=True)
        whole = (one for name in steps if (one := folder / name / MANIFEST).is_file())
        survived = folder.glob(f".survived-*/step-*/{SURVIVED}")  # looked for only without a whole one
        if note := next(whole, None) or max(survived, key=lambda one: one.parent.name, default=None):
            return Checkpoint(note.stat().st_mtime, str(note.parent), int(note.parent.name.partition("-")[2]))
        none = (IDENTITY, "step-", ".", "broken-")
        return _newest(str(folder / name) for name in names if not name.startswith(none))
    return None


def find_newest_saved(run: RunDir, pattern: str) -> Checkpoint | None:
    """Return the newest of what `find_saved` finds of each training of a run; None without one."""
    trainings = {run.training} if pattern else set()  # what the program saves elsewhere needs no folder here
    with suppress(OSError):
        names = os.listdir(run.path)  # noqa: PTH208 - paths take longer
        trainings |= {name for name in names if name == run.training or name.startswith("checkpoints-")}
    found = (find_saved(run._replace(training=name), pattern) for name in trainings)
    return max(filter(None, found), default=None)


def read_progress_mark(run: RunDir, pattern: str = "", job_id: str = "") -> str:
    """Return what a run has saved, as a text that differs after each newer checkpoint; `none` without one.

    Where `find_saved` finds none, what its ranks have noted in the attempts of the job counts.
    """
    if saved := find_saved(run, pattern):
        return str(saved)
    noted = _newest(str(run.program_save(job_id, attempt)) for attempt in run.attempts(job_id))
    return f"one of the program, {str(noted).rpartition(' of ')[2]}" if noted else "none"
