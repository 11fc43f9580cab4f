"""Reads and writes the files of runs: only regular ones, and whole. Starts nothing; standard library only."""

from __future__ import annotations
import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from slurmddp.errors import UsageError

TAIL_BYTES = 2**16
"""As much of the end of a file is read where only the newest counts."""
LARGEST_BYTES = 2**25
"""A larger file of a run is not read, but for output and events, which grow and are read in parts."""
LINE_BYTES = 2**20
"""A longer line is no record, and nothing behind it is read: holes of a file have no lines, and cost no space."""


def modification_time(path: Path) -> float | None:
    """Return when a file was last written, in seconds since 1970; None if it is missing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def check_out_file(path: str, option: str) -> None:
    """Raise UsageError for a path where no file can be written.

    It is a folder, a device or a pipe, or its own folder is not there.
    """
    if Path(path).is_dir():
        raise UsageError(f"{option}: '{path}' is a folder; give a file, as in {Path(path, 'FILE')}")
    if not Path(path).parent.is_dir():
        raise UsageError(f"{option}: there is no folder '{Path(path).parent}'; make it first")
    if not _is_replaceable(Path(path)):
        raise UsageError(f"{option}: '{path}' is not a regular file; give another")


def sha256_of(file: BinaryIO) -> str:
    """Return the SHA-256 of the rest of a file, in hexadecimal digits."""
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and each supervisor would pay for it

    whole = hashlib.sha256()
    for part in iter(lambda: file.read(LINE_BYTES), b""):
        whole.update(part)
    return whole.hexdigest()


def _is_replaceable(path: Path) -> bool:
    """Return whether a path, or what a link at it names, is missing or a regular file."""
    target = os.path.realpath(path)
    return not os.path.lexists(target) or Path(target).is_file()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the whole new content or the old one, also after a power failure.

    A link is followed. Raises OSError also for a folder, a device, a pipe or a socket, which would be replaced.
    """
    if not _is_replaceable(path):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with _errors_name(path):
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        with durable_file(path, content) as temporary:
            temporary.replace(path)
    sync_folder(path.parent)


def create_exclusively(path: Path, content: str) -> bool:
    """Create a file, durably; return False if it exists. The step is atomic on network file systems too."""
    try:
        with _errors_name(path), durable_file(path, content.encode()) as temporary:
            os.link(temporary, path)
            sync_folder(path.parent)
    except FileExistsError:
        return False
    return True


@contextmanager
def durable_file(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a durable file beside `path` with this content; its temporary name is removed at the end."""
    import tempfile  # noqa: PLC0415 - needed only to write, and every start would pay for it

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Let an OSError name the file that was asked for: it names a temporary one, or after a failed write none."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line of JSON with a single write, so that the lines of several writers do not mix.

    Raises OSError, also for what is not a regular file.
    """
    line = (json.dumps(record, allow_nan=False) + "\n").encode("ascii")
    descriptor = _open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        with _errors_name(path):
            if os.write(descriptor, line) < len(line):  # the disk became full within the line
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _open_descriptor(path: Path | str, flags: int, largest: int | None = None) -> int:
    """Open a regular file. Raises OSError for another, which could block or have no end, and for one that is larger."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    info = os.fstat(descriptor)
    is_regular = stat.S_ISREG(info.st_mode)
    if is_regular and (largest is None or info.st_size <= largest):
        return descriptor
    os.close(descriptor)
    why = f"it has {info.st_size >> 20} MB, more than {LARGEST_BYTES >> 20}" if is_regular else "not a regular file"
    raise OSError(errno.EFBIG if is_regular else errno.EINVAL, why, str(path))


def open_regular(path: Path, *, grows: bool = False, follow: bool = True) -> BinaryIO:
    """Open a file of a run to read. Raises OSError, also if it is not regular, or large and does not grow.

    Unless `follow`, it is raised for a link, too, which could lead out of the folder.
    """
    flags = os.O_RDONLY | (0 if follow else os.O_NOFOLLOW)
    return os.fdopen(_open_descriptor(path, flags, None if grows else LARGEST_BYTES), "rb")


def open_or_empty(path: Path, *, grows: bool = False) -> BinaryIO:
    """Open a file of a run to read; an empty one in place of a missing one.

    So it is, after a warning, for one that cannot be read: one damaged run does not hide the others.
    """
    try:
        return open_regular(path, grows=grows)
    except OSError as error:
        _warn_unless_missing(path, error)
    return Path(os.devnull).open("rb")


def read_end(path: Path | str, size: int = LARGEST_BYTES, *, grows: bool = False) -> bytes:
    """Return the last bytes of a file of a run, in a third of the time of a file object. Raises as `open_regular`."""
    descriptor = _open_descriptor(path, os.O_RDONLY, None if grows else LARGEST_BYTES)
    try:
        end = os.fstat(descriptor).st_size
        return os.pread(descriptor, min(size, end), max(0, end - size))
    finally:
        os.close(descriptor)


def read_or_empty(path: Path | str, size: int = LARGEST_BYTES, *, grows: bool = False) -> bytes:
    """Return what `read_end` does; nothing, after a warning as from `open_or_empty`, where that raises."""
    try:
        return read_end(path, size, grows=grows)
    except OSError as error:
        _warn_unless_missing(path, error)
    return b""


def _warn_unless_missing(path: Path | str, error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        warn_once(f"{path} is not read: {error.strerror}")


@cache
def warn_once(line: str) -> None:
    """Log a warning, which the commands show on stderr."""
    import logging  # noqa: PLC0415 - it slows down every start, and is needed only when something is wrong

    logging.getLogger("slurmddp").warning("%s", line)


def json_value(value: Any) -> Any:
    """Return a value for JSON: times in ISO 8601; `nan` and `inf`, which JSON cannot write, as texts."""
    if isinstance(value, dict):
        return {name: json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines; a cut-off last line and a missing file yield nothing."""
    return parse_records(read_or_empty(path).splitlines())


def parse_records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the records of lines of JSON; other lines are left out.

    When a cut-off record and a whole one share a line, the whole one is yielded.
    """
    return (record for line in lines if (record := parse_record(line)[0]) is not None)


def parse_record(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the record of a line of JSON, None without one; and what is wrong with the line, empty for nothing."""
    if not line.strip():
        return None, ""
    record = _parse(line)
    if isinstance(record, dict):
        return record, ""
    if record is not None:
        return None, "is no record"
    behind = line.rfind(_HEAD)
    whole = _parse(line[behind:]) if behind > 0 else None
    return (whole, "begins with a record that is cut off") if isinstance(whole, dict) else (None, "is cut off")


_HEAD = b'{"time": '
"""The beginning of each record of an event."""


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8", "surrogatepass"))  # of bytes it would guess the encoding
    except (ValueError, RecursionError):  # cut off, or thousands of brackets
        return None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
