"""What lines mean by their words: said by Slurm, at an end, as advice, as a warning; and which explain no failure.

`line_meanings.toml` is the only list of such words, and says what each meaning is. Reads the list.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal

from slurmddp.diagnose.log_reader import LogLine
from slurmddp.diagnose.rule_types import compile_set

Meaning = Literal[
    "slurm", "system", "closing", "advice", "fact", "ended", "warning", "harmless", "wrong", "doubtful", "good end",
    "done", "summary", "end", "launcher end", "script", "begun", "at work", "launcher", "launcher error", "signal",
    "child frame", "child error", "exception", "wrapper", "timed out", "job end", "restart", "noise", "waiting",
    "no start", "finally", "bad status", "supervisor", "tasks", "frame", "library", "imported", "caught", "headless",
    "dotted", "rich end", "sentence", "of logging",
]  # fmt: skip
_LISTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["lines"]
_LINES: Final = [(name, one) for table in _LISTS for name in table if name != "by" for one in table[name]]
_SET: Final = compile_set(pattern for _, pattern in _LINES)
HEADER: Final = "Traceback (most recent call last):"
LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
MOST_KEPT: Final = 2**17  # so many lines are kept with what was found of each: it is looked at many times
_MOST_LINES: Final = 60  # lines of a traceback of a launcher, or of a child whose parent has died
LAST_TOLD: Final = 10  # a good end is told in one of so many lines at the end
_WARNED: Final = re.compile(r"WARN|(?:^|[\s\]:])W\d{4} \d\d:")  # in a prefix: of Python's loggers, or of torch's


@lru_cache(maxsize=MOST_KEPT)
def find_meanings(text: str) -> frozenset[str]:
    """Return all that a line means; nothing for an ordinary line."""
    return frozenset(_LINES[number][0] for number in _SET.Match(text.encode("utf-8", "replace")) or ())


def means(text: str, *meanings: Meaning) -> bool:
    """Return whether a line means any of these."""
    return not find_meanings(text).isdisjoint(meanings)


def is_prose(text: str) -> bool:
    """Return whether a line is advice, or a person's words, and states no error."""
    return find_meanings(text) & {"advice", "fact"} == {"advice"}


def drop_tracebacks(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines without tracebacks of launchers, of children whose parent has died, and of what was logged."""
    dropped: set[int] = set()
    mixed = not all("WARN" in line.prefix for line in lines if line.text)  # else it stands before whatever is printed
    for index, line in enumerate(lines):
        if index not in dropped and line.text.endswith(HEADER):
            warned = takewhile(lambda at: mixed and _WARNED.search(lines[at].prefix), range(index, len(lines)))
            logged = set(warned) or _find_logged(lines, index)  # a program goes on behind a warning
            dropped |= logged or _find_teardown(lines, index, is_linked=index - 1 in dropped)
        elif line.text.startswith("Exception ignored in: <_io.") and "BrokenPipeError" in _text(lines, index + 1):
            dropped |= {index, index + 1}
    return [line for index, line in enumerate(lines) if index not in dropped]


def drop_teardown(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines without those tracebacks, without the closing words of any program, and without advice."""
    return [line for line in drop_tracebacks(lines) if not (is_prose(line.text) or means(line.text, "closing"))]


def _text(lines: Sequence[LogLine], index: int) -> str:
    return lines[index].text if 0 <= index < len(lines) else ""


def _find_logged(lines: Sequence[LogLine], head: int) -> set[int]:
    """Return the lines of a traceback that was caught and told of, or printed while a library is imported; else none.

    It begins where it was caught. One that ends a program begins in the program's own file, or is the last that it
    prints.
    """
    if not (means(_text(lines, head + 1), "imported") or means(lines[head].text, "caught")):
        return set()
    end = next((index for index in range(head + 2, len(lines)) if not lines[index].text.startswith(" ")), head)
    own = (line.text for line in lines[end + 1 :] if line.rank == lines[head].rank)
    is_last = not any(text.strip() and not means(text, "closing", "system") for text in own)
    return set() if is_last or _text(lines, end + 1).startswith(LINKS) else set(range(head, end + 1))


def _find_teardown(lines: Sequence[LogLine], head: int, *, is_linked: bool) -> set[int]:
    """Return the lines of a traceback of a launcher, or of a child that its dead parent left; none of another one.

    Other processes may print between them. It `is_linked` to a traceback of the launcher, during whose handling it was
    raised. The line that tells of a signal is none of them.
    """
    frames: list[str] = []
    found = {head}
    for index in range(head + 1, min(head + _MOST_LINES, len(lines))):
        text = lines[index].text
        if text.startswith(" "):
            frames += [text] if text.lstrip().startswith("File ") else []
            found.add(index)
        elif means(text, "exception") or text.endswith(HEADER):
            is_known = is_linked or means(text, "launcher error") or (frames and means(frames[-1], "signal"))
            of_launcher = is_known and any(means(frame, "launcher") for frame in frames)
            of_child = means(text, "child error") and frames and all(means(frame, "child frame") for frame in frames)
            found |= {index, *(at for at in (head - 1, index + 1) if _text(lines, at).startswith(LINKS))}
            if not means(text, "launcher error") or means(text, "signal"):
                found = {at for at in found if not means(lines[at].text, "signal")}
            return found if of_launcher or of_child else set()
    return set()
