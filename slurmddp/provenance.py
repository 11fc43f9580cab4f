"""Which code a job was submitted with: asks git, and changes nothing."""

import subprocess
from pathlib import Path
from typing import Final

_TIMEOUT_S: Final = 5.0


def commit(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit checked out in a folder and whether tracked files differ from it; None when unknown."""
    head = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no") if head else None
    return head, None if changes is None else bool(changes)


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: PLW1510 a folder without git is no error
            ["git", "-C", str(folder), *words], capture_output=True, timeout=_TIMEOUT_S
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
