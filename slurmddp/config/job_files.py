"""The files with values of a job: finds and reads them, and ignores files that other users can write. Writes nothing.

The user names a job file. A project file (`slurmddp.toml`, or `[tool.slurmddp]` of `pyproject.toml`) is searched from
the working directory upwards, and the user file in `~/.config`. The last two count only when no other user can have
written them.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from slurmddp.config.batch_script import BatchScript, check_batch_script, is_batch_script
from slurmddp.config.toml import JOB_FILE_KEYS, Source, build_source, describe_place, parse_toml
from slurmddp.errors import UsageError
from slurmddp.text import quote_value, suggest
from slurmddp.trust import explain_owner

OTHER_FORMATS: Final = (".tml", ".yaml", ".yml", ".json")
"""Endings of files that may be meant as a job file, and are none."""
SENT: Final = ".slurmddp-sent"
"""The list of the code that `--host` has sent to a folder. In such a folder no file says where commands run: here."""
PROJECT_FILE: Final = "slurmddp.toml"
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


class Configuration(msgspec.Struct, frozen=True):
    """The files with values for every job of a project, or of a user."""

    files: tuple[Source, ...] = ()
    """The files that count; the first beats the second."""
    ignored: tuple[Ignored, ...] = ()


def read_job_file(path: Path) -> Source:
    """Read a job file. Raises UsageError with the line of a syntax error, and for unknown keys."""
    try:
        raw = read_named(path, "job file")
    except UsageError as error:
        raise UsageError(str(error).replace("check the path", _explain_missing(path))) from error
    return build_source("job file", path, parse_toml(raw, describe_place("job file", path)), keys=JOB_FILE_KEYS)


def _explain_missing(path: Path) -> str:
    if path.name == "spec.toml" and path.with_name("submissions.jsonl").exists():
        run = path.absolute().parent.name
        return f"the record of run {quote_value(run)} is missing; submit its script or job file again with --name {run}"
    return f"`slurmddp init {shlex.quote(str(path))}` writes one"


def read_batch_script(path: str) -> BatchScript | None:
    """Return the batch script at a path; None for another kind of file, or none. Raises UsageError for a wrong one."""
    try:
        raw, why, _ = _read_regular(path)
    except (OSError, ValueError):  # a NUL in the path
        return None
    return check_batch_script(path, raw) if not why and is_batch_script(path, raw) else None


def read_named(path: str | Path, what: str) -> bytes:
    """Return the content of a file that the user named as `what`.

    Raises UsageError unless it is a regular file of at most LARGEST_MB.
    """
    try:
        raw, why, _ = _read_regular(path)
    except OSError as error:
        raise UsageError(f"{what} {explain_unreadable(path, error)}") from error
    if why:
        raise UsageError(f"{what} {quote_value(str(path))} {why}; give a text file")
    return raw


def read_named_text(path: str, option: str) -> str:
    """Return the text of a file that the user named by an option. Raises UsageError as `read_named` does."""
    try:
        text = read_named(path, f"{option}:").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{option}: {quote_value(path)} is not UTF-8 text; give a text file") from error
    if "\0" in text:
        raise UsageError(f"{option}: {quote_value(path)} has a NUL character; give a text file")
    return text


def _read_regular(path: str | Path) -> tuple[bytes, str, os.stat_result]:
    """Return a file's content, why it cannot be used (empty when it can), and its status. Raises OSError as `open`."""
    # a FIFO is opened at once, also when no process writes to it
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return b"", "is not a regular file", info
        if info.st_size > LARGEST_MB * 10**6:
            return b"", f"has {info.st_size / 10**6:.0f} MB, more than {LARGEST_MB}", info
        return file.read(LARGEST_MB * 10**6), "", info


def explain_unreadable(path: str | Path, error: OSError) -> str:
    """Return why a file that the user named cannot be read, and what may have been meant."""
    said = f"{quote_value(str(path))} cannot be read: {error.strerror}"
    return f"{said}; {suggest_file(path)}" if isinstance(error, FileNotFoundError) else said


def suggest_file(path: str | Path) -> str:
    """Return advice for a path that does not exist: the files beside it that are spelled like it."""
    missing = Path(path)
    files = (file.name for file in missing.parent.glob("*"))
    return suggest(
        missing.name, files, "check the path", cutoff=0.75, show=lambda name: quote_value(str(missing.with_name(name)))
    )


def find_configuration(folder: Path) -> Configuration:
    """Find and read the user file and the project file, which is the nearest one in `folder` or above it.

    The search ends at the repository's root, at the home directory, or at the border of the file system. Raises
    UsageError for an error in a file that counts.
    """
    ignored: list[Ignored] = []
    places = iterate_project_folders(folder)
    project = next((source for place in places for source in _project_files(place, ignored)), None)
    user = _read_if_trusted("user file", user_file(), ignored)
    return Configuration(tuple(source for source in (project, user) if source), tuple(ignored))


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


def _project_files(folder: Path, ignored: list[Ignored]) -> Iterator[Source]:
    own = _read_if_trusted("project file", folder / PROJECT_FILE, ignored)
    shared = _read_if_trusted("project file", folder / _PYPROJECT, ignored, root=_TOOL)
    if own and shared:
        ignored.append(Ignored(shared.path, f"{PROJECT_FILE} in the same folder is used"))
    yield from (source for source in (own, shared) if source)


def _read_if_trusted(kind: str, path: Path, ignored: list[Ignored], *, root: str = "") -> Source | None:
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
    table: Any = parse_toml(raw, describe_place(kind, path))
    if root:
        tools = table.get("tool")
        table = tools.get("slurmddp") if isinstance(tools, dict) else None
    return None if table is None else build_source(kind, path, table, root=root)


def read_and_check_owner(path: Path) -> tuple[bytes, str]:
    """Return the content of a file, and why it cannot be trusted (empty when it can). Raises OSError as `open` does."""
    raw, why, info = _read_regular(path)
    return raw, f"it {why}" if why else explain_owner(info, path.lstat())
