"""Remembers the folders in which this user has submitted runs, so that a run is found from any working directory.

One text file, `$XDG_STATE_HOME/slurmddp/folders` (XDG Base Directory Specification), a path a line, the newest last.
Standard library only.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp.runs.files import write_whole
from slurmddp.text import count

_MOST: Final = 500
"""Folders that are remembered; the oldest are forgotten."""


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")  # a relative one counts as unset
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "slurmddp" / "folders"


def remember(folder: Path) -> None:
    """Add a folder of runs. That it cannot be written down is no error: the run is found in its folder as before."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        known = _read()
        if str(folder) in known[-1:]:
            return
        path = _file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in path.parent.glob(f".{path.name}.*"):  # by a process that was killed meanwhile
            left.unlink()
        kept = [line for line in known if line != str(folder)][1 - _MOST :]
        write_whole(path, "".join(f"{line}\n" for line in [*kept, folder]).encode("utf-8", "surrogateescape"))


class GivenFolder(str):
    """The folder of runs that a person has given by `--runs-dir`: no other one is searched."""

    __slots__ = ()


def other_folders(runs_dir: str) -> list[Path]:
    """Return the known folders that are searched after `runs_dir`; none after one that was given."""
    return [] if isinstance(runs_dir, GivenFolder) else known_folders()


def known_folders() -> list[Path]:
    """Return the folders that still exist, the newest first."""
    with suppress(OSError, RuntimeError):
        return [path for path in map(Path, reversed(_read())) if path.is_dir()]
    return []


def hint_elsewhere() -> str:
    """Return what shows the runs of the known folders; empty without any."""
    known = known_folders()
    return f"`slurmddp status --all-folders` shows those of {count(len(known), 'other folder')}" if known else ""


def _read() -> list[str]:
    with suppress(FileNotFoundError):
        return _file().read_text("utf-8", "surrogateescape").splitlines()
    return []
