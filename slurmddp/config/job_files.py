"""Files that hold values of a job: finds, trusts and reads them. Touches the disk; writes nothing.

A job file is named by the user. A project file (`slurmddp.toml`, or `[tool.slurmddp]` of `pyproject.toml`) is found
upwards from the working directory, a user file where the system keeps such files; those two only count when nobody else
can have written them.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurmddp.config.toml import JOB_FILE_KEYS, Source, parse, place_of, source
from slurmddp.errors import UsageError
from slurmddp.text import shown

PROJECT_FILE: Final = "slurmddp.toml"
_PYPROJECT: Final = "pyproject.toml"
_TOOL: Final = "tool.slurmddp"
_TOOL_TABLE: Final = rb"(?m)^\s*\[\s*tool\s*\.\s*slurmddp\b"
_MAY_HAVE_TABLE: Final = rb"""\btool["']?\s*(\.\s*["']?slurmddp\b|\]|=)"""
"""Every way to write it; most projects name slurmddp among what they depend on, and to read all TOML takes its time."""


class Ignored(NamedTuple):
    """A file that does not count, and why."""

    path: Path
    why: str


class Configuration(NamedTuple):
    """The files that hold values for every job of a project, or of a user."""

    files: tuple[Source, ...] = ()
    """Those that count; the first beats the second."""
    ignored: tuple[Ignored, ...] = ()


def read_job_file(path: Path) -> Source:
    """Read a job file.

    Raises UsageError with the line of a mistake in its syntax, and for unknown keys.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"job file {shown(str(path))} cannot be read: {error.strerror}") from error
    return source("job file", path, parse(raw, place_of("job file", path)), keys=JOB_FILE_KEYS)


def find(folder: Path) -> Configuration:
    """Find and read the project file above `folder`, or in it, and the user file; the nearest project file counts.

    The search ends at the repository's root, at the home directory, or where another file system begins. Raises
    UsageError for a mistake in a file that counts.
    """
    ignored: list[Ignored] = []
    project = next((source for place in upwards(folder) for source in _project_files(place, ignored)), None)
    user = _trusted("user file", user_file(), ignored)
    return Configuration(tuple(source for source in (project, user) if source), tuple(ignored))


def user_file() -> Path:
    """Return where the user's own file is, or would be."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")  # a relative one counts as unset (XDG Base Directory)
    folder = configured if os.path.isabs(configured) else os.path.expanduser("~/.config")  # noqa: PTH111, PTH117 as above
    return Path(folder, "slurmddp", "config.toml")


def upwards(folder: Path) -> Iterator[Path]:
    """Yield the folder and those above it that can be a project's; asking further could wake an automounter."""
    home, device = _identity(Path(os.path.expanduser("~"))), folder.stat().st_dev  # noqa: PTH111 there may be no home
    for place in (folder, *folder.parents):
        identity = _identity(place)
        if identity is None or identity[0] != device:
            return
        yield place
        if identity == home or os.path.lexists(place / ".git"):
            return


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what stays the same of a folder by whatever link one comes to it."""
    try:
        info = folder.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _project_files(folder: Path, ignored: list[Ignored]) -> Iterator[Source]:
    own = _trusted("project file", folder / PROJECT_FILE, ignored)
    shared = _trusted("project file", folder / _PYPROJECT, ignored, root=_TOOL)
    if own and shared:
        ignored.append(Ignored(shared.path, f"{PROJECT_FILE} beside it counts"))
    yield from (source for source in (own, shared) if source)


def _trusted(kind: str, path: Path, ignored: list[Ignored], *, root: str = "") -> Source | None:
    """Read a file that nobody has named; None when there is none for us, or when it does not count."""
    try:
        raw, why = read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raw, why = b"", f"it cannot be read: {error.strerror}"
    if root and not re.search(_TOOL_TABLE if why else _MAY_HAVE_TABLE, raw):
        return None
    if why:
        ignored.append(Ignored(path, why))
        return None
    table: Any = parse(raw, place_of(kind, path))
    if root:
        tools = table.get("tool")
        table = tools.get("slurmddp") if isinstance(tools, dict) else None
    return None if table is None else source(kind, path, table, root=root)


def read(path: Path) -> tuple[bytes, str]:
    """Return what a file holds, and why it is not to be trusted, empty when it is; raise OSError as `open` does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        return b"", "it is no regular file"
    with os.fdopen(descriptor, "rb") as file:
        return file.read(), distrust(info, path.lstat())


def distrust(*infos: os.stat_result) -> str:
    """Tell why somebody else can have written a file, or the link to it, as git's safe.directory does."""
    for info in infos:
        if info.st_uid not in (0, os.geteuid()):
            return f"it belongs to user {info.st_uid}, who is neither you nor root"
        if info.st_mode & stat.S_IWOTH and not stat.S_ISLNK(info.st_mode):
            return "everybody may write to it; `chmod o-w` makes it count"
    return ""
