"""Finds lines that look like errors. Pure; `slurmddp.diagnose` finds their cause."""

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from slurmddp.diagnose.rules import load_rules, words_regex

_GENERAL: Final = (
    r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL|Traceback|Killed|Aborted|core dumped)\b",
    r"[A-Za-z](?:Error|Exception)\b(?! *=)",
    r"^(?:\[rank\d+\]:)?\s?\[?[EF]\d{4} \d\d:",
    r"slurmddp: .* status [1-9]",
)
"""Beside the texts of known failures; the third is glog's."""
_GENERAL_WORDS: Final = (
    "error|exception|interrupt|traceback|critical|fatal|killed|aborted|core dumped|status|[ef]0000 |: nan|nccl warn"
)
"""One of these is in every line that one of `_GENERAL` is in, with zeros for digits, or a rule for the last lines."""
_DIGIT: Final = re.compile(r"(\{[0-9,]+\})|[0-9]")
"""A digit that stands for itself in a pattern; or how often something may come, which stays."""
_TRACEBACK: Final = re.compile(rb"Traceback \(most recent call last\):")
_RANK: Final = re.compile(rb"^\[rank\d+\]: ?")


_SHAPE: Final = bytes.maketrans(b"123456789", b"000000000")
_SHAPES: Final = 2**14


class Errors:
    """Selects lines that look like errors; remembers for each file whether it is inside a traceback."""

    def __init__(self) -> None:
        self._inside: set[Path] = set()

    def is_one(self, path: Path, text: bytes) -> bool:
        """Tell whether a file's next line looks like an error, or belongs to a traceback."""
        if path in self._inside:
            if not _goes_on(text):
                self._inside.discard(path)
            return True
        if not (_may_look_wrong(text.translate(_SHAPE)) and _pattern().search(text)):
            return False
        if _TRACEBACK.search(text):
            self._inside.add(path)
        return True


@lru_cache(maxsize=_SHAPES)
def _may_look_wrong(shape: bytes) -> bool:
    """Tell whether a line could look like an error if its digits, which are all zeros here, were others.

    A training prints the same few lines millions of times, with other numbers.
    """
    return _worth().search(shape.lower()) is not None and _any_digits().search(shape) is not None


@cache
def _worth() -> re.Pattern[bytes]:
    """Return what finds, in small letters, a part of every line that any of the texts is in."""
    return re.compile(rf"{_GENERAL_WORDS}|{words_regex().pattern}".encode())


@cache
def _pattern() -> re.Pattern[bytes]:
    return re.compile(_one_of(_texts()))


@cache
def _any_digits() -> re.Pattern[bytes]:
    """Return what finds in zeros what `_pattern` finds in any digits."""
    zeros = (_DIGIT.sub(lambda found: found[1] or "0", text) for text in _texts())
    return re.compile(_one_of(zeros))


def _texts() -> Iterator[str]:
    """Yield the patterns, without the groups' names, which several rules share."""
    known = (pattern for rule in load_rules().own for pattern in rule.patterns)
    return (re.sub(r"\(\?P<\w+>", "(?:", text) for text in (*_GENERAL, *known))


def _one_of(texts: Iterable[str]) -> bytes:
    return "|".join(f"(?:{text})" for text in texts).encode()


def _goes_on(text: bytes) -> bool:
    """Tell whether a traceback's next line follows: its last one is the first that is not indented."""
    own = _RANK.sub(b"", text)
    return own.startswith((b" ", b"\t")) or not own.strip()
