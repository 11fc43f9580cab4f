"""Python's tracebacks in a log: which exceptions they name, and which of them ended a program. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from slurmddp.diagnose.log_reader import LogLine

HEADER: Final = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:[A-Za-z_][\w.]*)(?:: .*|:)?$")
_USUAL_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)(?::|$)")
_MOST_LINES: Final = 100
"""Lines of one traceback; Python itself shortens that of a deep recursion."""
_HEADLESS = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_RICH_FRAME_END = re.compile(r"╰─+╯")
"""The last line of a traceback that rich prints; the line of the exception follows it."""
_LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_SYSTEM = re.compile(
    r"srun: |slurmstepd: |slurmd: |\[\d{4}-\S+\] error: \*\*\*|\[[IWEF](?:\d{3,4} | \w+\.cpp)|\[W|[EW]\d{3,4} |"
    r"Exception raised from |frame #\d+: |terminate called|\S+ slurmddp: |torchrun: |Traceback|={5}|-{5}|[│╭╰]|"
    r"\S*ChildFailedError|Root Cause|Failures:|Killed|Killing subprocess|Terminated|Exception ignored |told to stop|"
    r"stop signal received|"
    r"This is |rank \d+ \(pid"
)
"""How lines begin that launchers and dying programs print."""
_NUMBERS: Final = re.compile(r"[\d.]+")
MOST_AFTER_FATAL: Final = 12
"""So many ordinary lines may follow a fatal exception, because other ranks still print."""

OUTLIVED_LINES: Final = 100
"""If more ordinary lines than this follow a line, the program did not end there."""


@dataclass(frozen=True)
class Traceback:
    """One traceback, with those of the exceptions that led to it."""

    exceptions: tuple[LogLine, ...]
    """The last line of each exception, the first one raised at the head."""
    end: int
    """The index of the line that follows it in the log."""
    lines_after: int = 0
    """How many ordinary lines came after it: a program that goes on has caught the exception."""


def find_tracebacks(lines: Sequence[LogLine]) -> list[Traceback]:
    """Return the tracebacks of one program, in the order in which they were printed."""
    found: list[Traceback] = []
    index, linked = 0, False
    while index < len(lines):
        text = lines[index].text
        if text.endswith(HEADER):
            end = _find_exception(lines, index + 1)
            if end is not None:
                before = found.pop().exceptions if linked and found else ()
                found.append(Traceback((*before, lines[end]), end + 1))
                index, linked = end, False
        elif _RICH_FRAME_END.match(text) and index + 1 < len(lines) and _USUAL_EXCEPTION.match(lines[index + 1].text):
            found.append(Traceback((lines[index + 1],), index + 2))
        elif _HEADLESS.match(text):
            found.append(Traceback((lines[index],), index + 1))
        elif text.startswith(_LINKS):
            linked = True
        index += 1
    return found


def _find_exception(lines: Sequence[LogLine], start: int) -> int | None:
    """Return the index of the exception's line: the first that begins with a usual name of an exception.

    Launchers and other ranks may have printed in between. Without a usual name, the first that could be one counts.
    """
    other = None
    for index in range(start, min(start + _MOST_LINES, len(lines))):
        text = lines[index].text
        if text.endswith(HEADER):
            break
        if _USUAL_EXCEPTION.match(text):
            return index
        if other is None and _EXCEPTION.match(text) and not _SYSTEM.match(text):
            other = index
    return other


def find_fatal_tracebacks(lines: Sequence[LogLine]) -> list[Traceback]:
    """Return the tracebacks that ended a program: after them come only other failures and a few ordinary lines.

    The last one may have more lines after it if they differ: a program may print a summary before it ends. Lines of
    one shape, as of steps, say that it went on.
    """
    found = find_tracebacks(lines)
    exceptions = {id(line) for traceback in found for line in traceback.exceptions}
    ordinary = [_is_ordinary(line) and id(line) not in exceptions for line in lines]
    after = [*accumulate(reversed(ordinary), initial=0)][::-1]  # one pass: programs log thousands of caught exceptions
    counted = (replace(traceback, lines_after=after[traceback.end]) for traceback in found)
    every = list(counted)
    fatal = [traceback for traceback in every if traceback.lines_after <= MOST_AFTER_FATAL]
    return fatal or [traceback for traceback in every[-1:] if _precedes_summary(traceback, lines)]


def line_shape(text: str) -> str:
    """Return a line with its numbers replaced: the lines about a program's steps have one shape."""
    return _NUMBERS.sub("0", text)


def _precedes_summary(traceback: Traceback, lines: Sequence[LogLine]) -> bool:
    if traceback.lines_after > OUTLIVED_LINES:
        return False
    shapes = {line_shape(line.text) for line in ordinary_lines(lines[traceback.end :])}
    return len(shapes) > traceback.lines_after / 2


def ordinary_lines(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines that neither launchers nor dying programs print."""
    return [line for line in lines if _is_ordinary(line)]


def _is_ordinary(line: LogLine) -> bool:
    return bool(line.text) and not (line.text.startswith((" ", *_LINKS)) or _SYSTEM.match(line.text))
