"""Which code a job is submitted with: asks git, and changes nothing."""

import subprocess
from pathlib import Path
from typing import Final

from slurmddp.errors import UsageError

_TIMEOUT_S: Final = 5.0
_LIST_TIMEOUT_S: Final = 60.0


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit checked out in a folder and whether tracked files differ from it; None when unknown."""
    head = _line(_git(folder, "rev-parse", "HEAD"))
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no") if head else None
    return head, None if changes is None else bool(changes)


def work_tree(folder: Path) -> Path | None:
    """Return the top of the work tree that a folder is in; None where there is none.

    Raises UsageError where a repository is, and git cannot or will not read it: what it ignores is then unknown.
    """
    said, words = _asked(folder, "rev-parse", "--show-toplevel")
    if said is None and (repository := _repository(folder)):
        raise UsageError(f"--snapshot: git does not say what it ignores in {repository}: {words}")
    top = _line(said)
    return Path(top) if top else None


def files(folder: Path) -> list[str] | None:
    """Return what git does not ignore in a folder, tracked or not, by path; a repository within ends in `/`.

    Tracked files that are gone are among them. None when git does not say.
    """
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = _git(folder, *words, timeout_s=_LIST_TIMEOUT_S)
    if listed is None:
        return None
    return [path for path in listed.decode("utf-8", "surrogateescape").split("\0") if path]


def _repository(folder: Path) -> Path | None:
    """Return the nearest folder upwards that holds a `.git`, within the file system, which git does not leave."""
    device = folder.stat().st_dev
    for place in (folder, *folder.parents):
        if place.stat().st_dev != device:
            return None
        if (place / ".git").exists():
            return place
    return None


def _line(said: bytes | None) -> str | None:
    return said.decode("utf-8", "surrogateescape").rstrip("\n") if said is not None else None


def _git(folder: Path, *words: str, timeout_s: float = _TIMEOUT_S) -> bytes | None:
    return _asked(folder, *words, timeout_s=timeout_s)[0]


def _asked(folder: Path, *words: str, timeout_s: float = _TIMEOUT_S) -> tuple[bytes | None, str]:
    """Return what git answers, None when it fails, and what it says beside that, on one line."""
    try:
        done = subprocess.run(  # noqa: PLW1510 a folder without git is no error
            ["git", "-C", str(folder), *words], capture_output=True, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    said = " ".join(done.stderr.decode("utf-8", "replace").split())
    return done.stdout if done.returncode == 0 else None, said
