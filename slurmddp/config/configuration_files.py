"""Finds the files with values for every job of a project, or of a user, and which of them count. Parses none.

A project file (`slurmddp.toml`, or `[tool.slurmddp]` of `pyproject.toml`) is searched from the working directory
upwards, and the user file in `~/.config`. They count only when no other user can have written them.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from slurmddp.trust import explain_owner

RUNS_DIR: Final = "jobs"
"""The folder of the runs where no other is given."""
PROJECT_FILE: Final = "slurmddp.toml"
SENT: Final = ".slurmddp-sent"
"""The list of the code that `--host` has sent to a folder. In such a folder no file says where commands run: here."""
LARGEST_MB: Final = 16
"""The size in 10**6 bytes up to which a file that a user names is read."""
_PYPROJECT: Final = "pyproject.toml"
_TOOL: Final = "tool.slurmddp"
_TOOL_TABLE: Final = rb"(?m)^\s*\[\s*tool\s*\.\s*slurmddp\b"
_MAY_HAVE_TABLE: Final = rb"""\btool["']?\s*(\.\s*["']?slurmddp\b|\]|=)"""
"""Every spelling of the table. Most projects name slurmddp only as a dependency, and parsing their TOML is slow."""


class Ignored(NamedTuple):
    """A file that does not count, and why."""

    path: Path
    why: str


T = TypeVar("T")
Reader = Callable[[str, Path, str, bytes], T | None]
"""Gets `project file` or `user file`, its path, the table in it that counts (or an empty text), and its content."""


def find_files(folder: Path, read: Reader[T]) -> tuple[tuple[T, ...], tuple[Ignored, ...]]:
    """Return what `read` makes of the project file and the user file, and the files that do not count.

    The project file is the nearest in `folder` or above it of which `read` makes anything. The search ends at the
    repository's root, at the home directory, or at the border of the file system.
    """
    ignored: list[Ignored] = []
    places = iterate_project_folders(folder)
    project = next((one for place in places for one in _project_files(place, read, ignored)), None)
    user = _read_if_trusted("user file", user_file(), read, ignored)
    return tuple(one for one in (project, user) if one), tuple(ignored)


def user_file() -> Path:
    """Return the path of the user file, which may not exist."""
    return next(configuration_folders()) / "config.toml"


def configuration_folders() -> Iterator[Path]:
    """Yield the folder of the user's configuration, then those of the machine's, which may not exist."""
    own = os.environ.get("XDG_CONFIG_HOME", "")  # a relative path counts as unset (XDG Base Directory)
    yield Path(own if os.path.isabs(own) else os.path.expanduser("~/.config"), "slurmddp")  # noqa: PTH111, PTH117 as above
    shared = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    yield from (Path(folder, "slurmddp") for folder in shared if os.path.isabs(folder))  # noqa: PTH117 as above


def iterate_project_folders(folder: Path) -> Iterator[Path]:
    """Yield the folder and those above it that can belong to the project; further ones could start an automounter."""
    home, device = _identity(Path(os.path.expanduser("~"))), folder.stat().st_dev  # noqa: PTH111 there may be no home
    for place in (folder, *folder.parents):
        identity = _identity(place)
        if identity is None or identity[0] != device:
            return
        yield place
        if identity == home or os.path.lexists(place / ".git"):
            return


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return the device and inode of a folder, which are the same through every link to it."""
    try:
        info = folder.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _project_files(folder: Path, read: Reader[T], ignored: list[Ignored]) -> Iterator[T]:
    own = _read_if_trusted("project file", folder / PROJECT_FILE, read, ignored)
    shared = _read_if_trusted("project file", folder / _PYPROJECT, read, ignored, root=_TOOL)
    if own and shared:
        ignored.append(Ignored(folder / _PYPROJECT, f"{PROJECT_FILE} in the same folder is used"))
    yield from (one for one in (own, shared) if one)


def _read_if_trusted(kind: str, path: Path, read: Reader[T], ignored: list[Ignored], *, root: str = "") -> T | None:
    """Read a file that the user has not named; None when it is not there or does not count."""
    try:
        raw, why = read_and_check_owner(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raw, why = b"", f"it cannot be read: {error.strerror}"
    if root and not re.search(_TOOL_TABLE if why else _MAY_HAVE_TABLE, raw):
        return None
    if why:
        ignored.append(Ignored(path, why))
        return None
    return read(kind, path, root, raw)


def read_and_check_owner(path: Path) -> tuple[bytes, str]:
    """Return the content of a file, and why it cannot be trusted (empty when it can). Raises OSError as `open` does."""
    raw, why, info = read_regular(path)
    return raw, f"it {why}" if why else explain_owner(info, path.lstat())


def read_regular(path: str | Path) -> tuple[bytes, str, os.stat_result]:
    """Return a file's content, why it cannot be used (empty when it can), and its status. Raises OSError as `open`."""
    # a FIFO is opened at once, also when no process writes to it
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return b"", "is not a regular file", info
        if info.st_size > LARGEST_MB * 10**6:
            return b"", f"has {info.st_size / 10**6:.0f} MB, more than {LARGEST_MB}", info
        return file.read(LARGEST_MB * 10**6), "", info
