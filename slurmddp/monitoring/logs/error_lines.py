"""Finds lines that look like errors. Pure; `slurmddp.diagnose` finds their cause."""

import re
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
        if path in self._inside:  # up to the first line that is not indented
            own = _RANK.sub(b"", text)
            if own.strip() and not own.startswith((b" ", b"\t")):
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
    words = re.compile(f"{_GENERAL_WORDS}|{words_regex().pattern}".encode())
    return words.search(shape.lower()) is not None and _pattern(zeros=True).search(shape) is not None


@cache
def _pattern(*, zeros: bool = False) -> re.Pattern[bytes]:
    """Return what finds the lines that look like errors; with `zeros` it finds them with zeros for their digits."""
    known = (regex.pattern for rule in load_rules().own for regex in rule.regexes)
    texts = [re.sub(r"\(\?P<\w+>", "(?:", text) for text in (*_GENERAL, *known)]  # several rules share a group's name
    if zeros:
        texts = [_DIGIT.sub(lambda found: found[1] or "0", text) for text in texts]
    return re.compile("|".join(f"(?:{text})" for text in texts).encode())
