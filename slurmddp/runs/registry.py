"""Remembers the folders in which this user has submitted runs, so that a run is found from any working directory.

One text file, `$XDG_STATE_HOME/slurmddp/folders` (XDG Base Directory Specification), a path a line, the newest last.
Standard library only.
"""

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp.runs.files import write_whole

_MOST: Final = 500
"""Folders that are remembered; the oldest are forgotten."""


def state_file(name: str) -> Path:
    """Return the path of a file in the folder of this user's state. Raises RuntimeError for a user without a home."""
    state = os.environ.get("XDG_STATE_HOME", "")  # a relative one counts as unset
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "slurmddp" / name


def remember(folder: Path) -> None:
    """Add a folder of runs. That it cannot be written down is no error: the run is found in its folder as before."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        known = _read()
        if str(folder) in known[-1:]:
            return
        path = state_file("folders")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    """Return what shows the runs of the folder that was used last; empty without any."""
    known = [folder for folder in known_folders() if any(folder.glob("*/submissions.jsonl"))]
    return f"`slurmddp status --runs-dir {shlex.quote(str(known[0]))}` shows those of another folder" if known else ""


def _read() -> list[str]:
    with suppress(FileNotFoundError):
        return state_file("folders").read_text("utf-8", "surrogateescape").splitlines()
    return []
