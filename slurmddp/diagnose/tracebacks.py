"""Python's tracebacks in a log: which exceptions, and which of them ended a program. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from slurmddp.diagnose.log_reader import Raw

_HEADER: Final = "Traceback (most recent call last):"
_LAST = re.compile(r"(?:[A-Za-z_][\w.]*)(?:: .*|:)?$")
_USUAL = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)(?::|$)")
_LONGEST: Final = 100
"""Lines of a traceback; a deep recursion is shortened by Python itself."""
_HEADLESS = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_FRAMED = re.compile(r"╰─+╯")
"""The last line of a traceback as rich prints it; the exception's own line comes behind."""
_LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_SYSTEM = re.compile(
    r"srun: |slurmstepd: |slurmd: |\[\d{4}-\S+\] error: \*\*\*|\[[IWEF](?:\d{3,4} | \w+\.cpp)|\[W|[EW]\d{3,4} |"
    r"Exception raised from |frame #\d+: |terminate called|\S+ slurmddp: |torchrun: |Traceback|={5}|-{5}|[│╭╰]|"
    r"\S*ChildFailedError|Root Cause|Failures:|Killed|Killing subprocess|Terminated|Exception ignored |told to stop|"
    r"This is |rank \d+ \(pid"
)
_STRAY: Final = 12
"""So many ordinary lines may come after an exception that ended a program: other ranks still print."""

LONG: Final = 100
"""So many come after a line, and neither its program nor all other ranks can have ended there."""


@dataclass(frozen=True)
class Chain:
    """One traceback, with those that led to it."""

    last: tuple[Raw, ...]
    """The last line of each exception, the first that was raised at the head."""
    end: int
    """How many lines of the log lie before what follows it."""
    after: int = 0
    """How many ordinary lines came after it: a program that goes on has caught it."""


def chains(lines: Sequence[Raw]) -> list[Chain]:
    """Return the tracebacks of one program, in the order in which they were printed."""
    found: list[Chain] = []
    index, linked = 0, False
    while index < len(lines):
        text = lines[index].text
        if text.endswith(_HEADER):
            end = _end(lines, index + 1)
            if end is not None:
                before = found.pop().last if linked and found else ()
                found.append(Chain((*before, lines[end]), end + 1))
                index, linked = end, False
        elif _FRAMED.match(text) and index + 1 < len(lines) and _USUAL.match(lines[index + 1].text):
            found.append(Chain((lines[index + 1],), index + 2))
        elif _HEADLESS.match(text):
            found.append(Chain((lines[index],), index + 1))
        elif text.startswith(_LINKS):
            linked = True
        index += 1
    return found


def _end(lines: Sequence[Raw], index: int) -> int | None:
    """Return where the exception's own line is: the first, not indented, that is named as exceptions are.

    Launchers and other ranks may have written between; a name of another kind counts where there is none like that.
    """
    other = None
    for number in range(index, min(index + _LONGEST, len(lines))):
        text = lines[number].text
        if text.endswith(_HEADER):
            break
        if _USUAL.match(text):
            return number
        if other is None and _LAST.match(text) and not _SYSTEM.match(text):
            other = number
    return other


def fatal(lines: Sequence[Raw]) -> list[Chain]:
    """Return those that ended something: after which nothing but other failures came, and a few stray lines."""
    found = chains(lines)
    spoken = {id(line) for chain in found for line in chain.last}
    told = [_is_ordinary(line) and id(line) not in spoken for line in lines]
    after = [*accumulate(reversed(told), initial=0)][::-1]  # programs log what they caught, in thousands
    counted = (replace(chain, after=after[chain.end]) for chain in found)
    return [chain for chain in counted if chain.after <= _STRAY]


def ordinary_after(lines: Sequence[Raw], start: int) -> int:
    """Return how many ordinary lines there are from one on."""
    return len(ordinary(lines[start:]))


def ordinary(lines: Sequence[Raw]) -> list[Raw]:
    """Return the lines that neither launchers nor dying programs print."""
    return [line for line in lines if _is_ordinary(line)]


def _is_ordinary(line: Raw) -> bool:
    return bool(line.text) and not (line.text.startswith((" ", *_LINKS)) or _SYSTEM.match(line.text))
