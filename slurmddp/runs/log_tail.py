"""Reads a log that may still grow, in whole lines, and when each was printed. Keeps no file open between two reads."""

import errno
import math
import os
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from slurmddp.runs.files import open_or_empty

READ_BYTES: Final = 2**20
"""Size of one read, unless another is given."""
LINE_BYTES: Final = 2**16
"""A longer line is passed on without waiting for its end."""
_BACK_BYTES: Final = 2**12
_LINE: Final = re.compile(rb"[^\n]*\n|[^\n]+")
HEAD_BYTES: Final = 80
"""A timestamp further into the line is not read."""
SLACK_S: Final = 60.0
"""Two machines' clocks may differ by this much."""

_DAY_S: Final = 86400.0
_LATEST: Final = 1e11
"""Seconds since 1970 in the year 5138: the time of a file may be anything."""
_DATE: Final = re.compile(
    rb"(?<!\d)\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_GLOG: Final = re.compile(rb"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})\b")


@dataclass(slots=True)
class GrowingFile:
    """A file, and how far it has been read. A missing file is an empty one."""

    path: Path
    at: int = 0
    """Where the next read begins."""
    end: int = sys.maxsize
    """Where the last one ends."""

    def read_lines(self, limit: int = READ_BYTES, *, returns: bool = False, rest: bool = False) -> list[bytes]:
        r"""Return the whole lines that follow, with their ends, from `limit` bytes or one line.

        With `returns`, a `\r` ends a line too, as in a progress bar; with `rest`, a last line without an end counts.
        """
        text = self._read(limit)
        at_return = text.rfind(b"\r", 0, -1) if returns else -1  # not at the end of the text: `\n` may follow
        length = max(text.rfind(b"\n"), at_return) + 1
        if not length and (len(text) >= LINE_BYTES or (rest and len(text) < limit)):
            length = len(text)
        elif not length and len(text) == limit:
            return self.read_lines(2 * limit, returns=returns, rest=rest)
        self.at += length
        return text[:length].splitlines(keepends=True) if returns else _LINE.findall(text[:length])

    def has_more(self) -> bool:
        """Return whether the file has grown, without opening it; a file that became shorter is read from the start."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return False  # NFS may miss a file for a moment: it is not read again from the start
        self.at = self.at if size >= self.at else 0
        return size > self.at

    def _read(self, limit: int) -> bytes:
        with open_or_empty(self.path, grows=True) as file:
            self.at = _behind_hole(file.fileno(), self.at)
            file.seek(self.at)
            return file.read(max(0, min(limit, self.end - self.at)))


def _behind_hole(descriptor: int, at: int) -> int:
    """Return where the next data are: a log that was truncated under its writer begins with a hole of any size."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:  # ENXIO: there are none; or the file system does not know
        return max(at, os.fstat(descriptor).st_size) if error.errno == errno.ENXIO else at


def relative_path(path: Path) -> str:
    """Return a path relative to the working directory if it lies in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def file_size(path: Path) -> int:
    """Return the size of a file; 0 for one that is missing, or cannot be found by its links."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def start_of_tail(path: Path, count: int, end: int) -> int:
    """Return where the last `count` lines before `end` begin, reading from there back; 0 for a missing file.

    Of longer lines than LINE_BYTES, each so many bytes count as a line.
    """
    with open_or_empty(path, grows=True) as file:
        return _back(file.fileno(), end, count)


def end_of_lines(path: Path) -> int:
    """Return where the last whole line of a file ends; 0 for a missing file."""
    with open_or_empty(path, grows=True) as file:
        end = os.fstat(file.fileno()).st_size
        is_whole = end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n"
        return end if is_whole else _back(file.fileno(), end, 1)


def _back(descriptor: int, end: int, count: int) -> int:
    left, place, size = count, end, _BACK_BYTES
    least = max(0, end - (count + 1) * LINE_BYTES)
    if count == 0 or end == 0:
        return end
    left += os.pread(descriptor, 1, end - 1) == b"\n"  # no line follows the end of the last one
    while place > least:
        size = min(2 * size, READ_BYTES, place - least)
        place -= size
        block = os.pread(descriptor, size, place)
        found = block.count(b"\n")
        if found >= left:
            return place + len(block.rsplit(b"\n", left)[0]) + 1
        left -= found
    return least


def read_timestamp(line: bytes, *, near: float, since: float = -math.inf, until: float = math.inf) -> "float | None":
    """Return when a line says that it was printed, in seconds since 1970; None when it does not say.

    Read are a date and a time of day near the line's beginning, as Python's logging and Slurm print them, and the
    timestamps of glog, which torch and NCCL use: `[rank0]:[W1121 23:40:18.123456789 ...`. Without a zone it is this
    machine's time.

    A timestamp of glog has no year: it is in the last year in which it is at most a day after `near`. Other dates in a
    line, before `since` or after `until`, are data.
    """
    head = line[:HEAD_BYTES]
    found = (_DATE.search(head) or _GLOG.search(head)) if b":" in head else None
    time = _parse(found[0], near) if found else None
    return time if time is not None and since - SLACK_S <= time <= until + SLACK_S else None


@lru_cache(maxsize=256)  # many lines in a row have the same timestamp
def _parse(text: bytes, near: float) -> "float | None":
    """Return the time of a timestamp; None for what is no date, as 2026-13-45."""
    glog = _GLOG.match(text)
    try:
        if glog is None:
            return datetime.fromisoformat(text.decode().replace("/", "-")).timestamp()
        near = min(max(near, 0.0), _LATEST)
        year = datetime.fromtimestamp(near).astimezone().year
        parts = tuple(map(int, glog.groups()[:5]))  # month to second
        times = (datetime(y, *parts).timestamp() for y in (year + 1, year, year - 1))  # type: ignore[arg-type]  # noqa: DTZ001 local time
        return next((time + float(b"0." + glog[6]) for time in times if time <= near + _DAY_S), None)
    except ValueError:
        return None
