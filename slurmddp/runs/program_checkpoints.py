"""Finds the checkpoints that a program writes by its own means, by the glob of `--checkpoints`."""

import glob
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple


class ProgramCheckpoint(NamedTuple):
    """A file or a folder that the program has written."""

    saved_at: float
    """Seconds since 1970."""
    path: str
    """As the glob gives it: relative to the working directory where the glob is."""

    def __str__(self) -> str:
        """Return its path and time, which differ from those of an earlier one in the same file."""
        return f"{self.path} of {datetime.fromtimestamp(self.saved_at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def newest_program_checkpoint(pattern: str) -> ProgramCheckpoint | None:
    """Return the newest match of the glob; None without one. A folder is as new as the newest file directly in it."""
    return max(_matches(pattern), default=None)


def _matches(pattern: str) -> Iterator[ProgramCheckpoint]:
    for path in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - keeps the path as the pattern has it
        with suppress(OSError):  # the program may remove an old one meanwhile
            files = Path(path).iterdir() if Path(path).is_dir() else ()
            yield ProgramCheckpoint(max(file.stat().st_mtime for file in (Path(path), *files)), path)
