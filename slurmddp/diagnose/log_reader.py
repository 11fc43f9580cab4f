"""Log files, read in bounded parts: the head and the tail of each, with line numbers, ranks and times. Reads files."""

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.diagnose.rule_types import Line
from slurmddp.runs.files import open_regular
from slurmddp.runs.log_tail import read_timestamp, relative_path
from slurmddp.text import clean_line

HEAD_BYTES: Final = 2**17
TAIL_BYTES: Final = 2**20
LINE_CHARS: Final = 4000  # how much of a line is kept; programs print whole tensors
COUNTED_BYTES: Final = 2**31  # up to this offset lines are counted to number one: that takes a second or two
EVIDENCE_CHARS: Final = 297  # how much of a long line is evidence
_BLOCK_BYTES: Final = 2**18
_LINE_ENDS: Final = (b"\n", b"\r")  # a progress bar ends its lines with the second alone
_BAR: Final = re.compile(rb"\d%|\bit/s|s/it|\d/\d+ \[")
_KILL: Final = re.compile(rb"^ *\d+: +(?=slurmstepd: )|(?<=[^\s:])(?=slurmstepd: error: \*\*\* )")
"""Where slurmstepd's line begins behind the number of a rank, or behind a line that has no end, as that of a bar."""


class LogLine(NamedTuple):
    """A line of a log file."""

    path: Path
    offset: int  # bytes before it in the file
    text: str  # without colours and prefix, at most `LINE_CHARS` characters
    rank: int | None = None  # the rank that printed it, if a label says so
    host: str = ""  # the node on which it was printed, if a prefix says so
    prefix: str = ""  # what stood before the text: labels, timestamps, hosts
    time: float | None = None  # when it was printed, in seconds since 1970, by its timestamp; None if that is not known
    order: float = -1.0  # its place in the order of time, if that of the file is another one

    @property
    def at(self) -> float:
        """Where it stands in the order of time."""
        return self.offset if self.order < 0 else self.order


def read_lines(
    path: Path, *, head: int = HEAD_BYTES, tail: int = TAIL_BYTES, begin: int = 0, end: int = sys.maxsize
) -> list[LogLine]:
    """Return the lines in the first and the last bytes of a file; all lines of a short one, none if it is missing.

    `begin` and `end` limit this to a part of the file. Only regular files are read: opening a pipe could block.
    """
    with suppress(OSError), open_regular(path, grows=True) as file:
        info = os.fstat(file.fileno())
        end, written = min(end, info.st_size), info.st_mtime
        file.seek(begin)
        if end - begin <= head + tail:
            return list(_split_lines(path, file.read(max(0, end - begin)), begin, written))
        first = file.read(head)
        first = first[: max(map(first.rfind, _LINE_ENDS)) + 1]
        file.seek(end - tail)
        last = file.read(tail)
        cut = min((at for at in map(last.rstrip(b"\r\n").find, _LINE_ENDS) if at >= 0), default=-1) + 1
        behind = _split_lines(path, last[cut:], end - tail + cut, written)
        return [*_split_lines(path, first, begin, written), *behind]
    return []


def _split_lines(path: Path, data: bytes, offset: int, written: float) -> Iterator[LogLine]:
    for line in data.split(b"\n"):
        if line.strip(b"\0 \t\r"):  # of what a progress bar has overwritten, the last counts, and what is no bar
            *before, last = line.replace(b"\0", b"").rstrip(b"\r").split(b"\r")
            shown = *(part for part in before if part.strip() and not _BAR.search(part)), last
            for part in filter(None, chain.from_iterable(map(_KILL.split, shown))):
                text = clean_line(part[: 4 * LINE_CHARS])[:LINE_CHARS].rstrip()
                yield LogLine(path, offset, text, time=read_timestamp(text.encode(), near=written))
        offset += len(line) + 1


def make_evidence(line: LogLine) -> Line:
    """Return a line as evidence, with its number: 0 if it lies too far into the file to be counted."""
    number = _count_lines(line.path, line.offset) if line.offset <= COUNTED_BYTES else 0
    return Line(relative_path(line.path), number, line.text.strip())


def _count_lines(path: Path, offset: int) -> int:
    """Return the number of the line at an offset; 0 if the file cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        info = os.fstat(file.fileno())
        known = _known_numbers(path, info.st_ino, info.st_mtime_ns)
        at, number = known[bisect_right(known, (offset, sys.maxsize)) - 1]
        file.seek(at)
        while block := file.read(min(_BLOCK_BYTES, offset - at)):
            at, number = at + len(block), number + block.count(b"\n")
            if at > known[-1][0]:
                known.append((at, number))
        return number
    return 0


@lru_cache(maxsize=4096)
def _known_numbers(*_file: object) -> list[tuple[int, int]]:
    """Return offsets in a file with the numbers of their lines; `_count_lines` adds some, and reads nothing twice."""
    return [(0, 1)]


def cut_around(text: str, start: int) -> str:
    """Return a long line cut to what stands around a position, which stays within what is shown of it."""
    begin = max(0, min(start - EVIDENCE_CHARS // 4, len(text) - EVIDENCE_CHARS))
    return f"{'...' if begin else ''}{text[begin : begin + EVIDENCE_CHARS]}"
