"""Files read in bounded parts: the head and the tail of each, whatever its size. Touches the disk only to read."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slurmddp.diagnose.model import Line

HEAD_BYTES: Final = 2**17
TAIL_BYTES: Final = 2**20
LINE_CHARS: Final = 1000
"""What is kept of a line; programs print tensors."""
COUNTED_BYTES: Final = 2**31
"""How far into a file lines are counted to give one its number: a second or two."""
_BLOCK: Final = 2**22
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Raw:
    """A line as it lies in a file."""

    path: Path
    offset: int
    """Bytes before it."""
    text: str
    """Without colours, cut off after `LINE_CHARS`."""
    rank: int | None = None
    """Whose it is, by a label before it."""


def read(
    path: Path, *, head: int = HEAD_BYTES, tail: int = TAIL_BYTES, begin: int = 0, end: int = sys.maxsize
) -> list[Raw]:
    """Return the lines in the first and the last bytes of a file, all where it is shorter; none of one not there.

    `begin` and `end` name a part of it. Nothing is read of what is no file: a job's output may be a pipe, which nobody
    fills any more.
    """
    if not path.is_file():
        return []
    with suppress(OSError), path.open("rb") as file:
        end = min(end, os.fstat(file.fileno()).st_size)
        file.seek(begin)
        if end - begin <= head + tail:
            return list(_lines(path, file.read(max(0, end - begin)), begin))
        first = file.read(head)
        first = first[: first.rfind(b"\n") + 1]
        file.seek(end - tail)
        last = file.read(tail)
        cut = last.find(b"\n") + 1
        return [*_lines(path, first, begin), *_lines(path, last[cut:], end - tail + cut)]
    return []


def _lines(path: Path, data: bytes, offset: int) -> Iterator[Raw]:
    for line in data.split(b"\n"):
        text = _COLOUR.sub("", line[: 4 * LINE_CHARS].decode("utf-8", "replace").rpartition("\r")[2] or "")
        if text.strip() or line.strip():
            yield Raw(path, offset, text[:LINE_CHARS].rstrip())
        offset += len(line) + 1


_LABEL = re.compile(r"\[(?:rank|default)(\d+)\]: ?")
_TASK = re.compile(r" *(\d+): ?")
_LABELLED: Final = 0.9
"""The share of lines with a task's number in front from which on it was `srun --label` that put it there."""


def labelled(lines: Iterable[Raw]) -> list[Raw]:
    """Return the lines without the label that torch, torchrun or `srun --label` put before them, and whose they are."""
    lines = list(lines)
    told = [line for line in lines if not line.text.startswith("srun: ")]
    if told and sum(1 for line in told if _TASK.match(line.text)) > _LABELLED * len(told):
        lines = [_unlabelled(line, _TASK) for line in lines]
    return [_unlabelled(line, _LABEL) for line in lines]


def _unlabelled(line: Raw, label: re.Pattern[str]) -> Raw:
    match = label.match(line.text)
    return replace(line, text=line.text[match.end() :], rank=int(match[1])) if match else line


def evidence(line: Raw) -> Line:
    """Return a line to show, with its number: 0 too far into a file to be counted."""
    return Line(shown_path(line.path), _number(line), line.text.strip())


def shown_path(path: Path) -> str:
    """Return a path as people in this working directory would type it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _number(line: Raw) -> int:
    if line.offset > COUNTED_BYTES:
        return 0
    count, left = 1, line.offset
    with suppress(OSError), line.path.open("rb") as file:
        while left and (block := file.read(min(_BLOCK, left))):
            count, left = count + block.count(b"\n"), left - len(block)
        return count
    return 0
