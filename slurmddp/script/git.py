"""Asks git for the commit and the files of a folder. Changes nothing."""

import subprocess
from pathlib import Path
from typing import Final

from slurmddp.config.configuration_files import iterate_project_folders
from slurmddp.errors import UsageError

_TIMEOUT_S: Final = 5.0
_LIST_TIMEOUT_S: Final = 60.0


def read_commit(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit of a folder and whether tracked files differ from it; None when unknown."""
    head = _run_git(folder, "rev-parse", "HEAD")[0]
    changes = _run_git(folder, "status", "--porcelain", "--untracked-files=no")[0] if head else None
    return head, None if changes is None else bool(changes)


def find_work_tree(folder: Path) -> Path | None:
    """Return the top of the work tree of a folder; None where there is none.

    Raises UsageError for a repository that git cannot read, since the ignored files are then unknown.
    """
    said, words = _run_git(folder, "rev-parse", "--show-toplevel")
    for place in iterate_project_folders(folder) if said is None else ():
        if (place / ".git").exists():
            raise UsageError(f"--snapshot: git cannot read {place}: {words}")
    return Path(said) if said else None


def list_files(folder: Path) -> list[str]:
    """Return the paths of all files in a folder that git does not ignore; a repository inside ends in `/`.

    Deleted files that are still tracked are included. Raises UsageError when git fails.
    """
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = _run_git(folder, *words, timeout_s=_LIST_TIMEOUT_S)[0]
    if listed is None:
        raise UsageError(f"--snapshot: git cannot list the files of {folder}; run `git status` there")
    return [path for path in listed.split("\0") if path]


def _run_git(folder: Path, *words: str, timeout_s: float = _TIMEOUT_S) -> tuple[str | None, str]:
    """Return git's standard output without the last line end, None when it fails, and its standard error in a line."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603 - no shell
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    said = " ".join(done.stderr.decode("utf-8", "replace").split())
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n") if done.returncode == 0 else None, said
