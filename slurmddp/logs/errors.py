"""Which lines look like errors. Pure; what they mean is for `slurmddp.diagnose` to say."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path  # noqa: TC003 the set below is annotated with it
from typing import Final

from slurmddp.diagnose.catalogue import RULES, WORDS
from slurmddp.logs.listing import Line

_GENERAL: Final = (
    r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL|Traceback|Killed|Aborted|core dumped)\b",
    r"[A-Za-z](?:Error|Exception)\b(?! *=)",
    r"^(?:\[rank\d+\]:)?\s?\[?[EF]\d{4} \d\d:",
    r"slurmddp: .* status [1-9]",
)
"""Beside the texts of known failures; the third is glog's."""
_WORTH: Final = re.compile(
    rf"exception|interrupt|traceback|critical|fatal|core dumped|status|[ef]\d{{4}} |{WORDS}".encode()
)
"""One of these, in small letters, is in every line that any of the texts is in; the rest is passed over quickly."""
_TRACEBACK: Final = re.compile(rb"Traceback \(most recent call last\):")
_RANK: Final = re.compile(rb"^\[rank\d+\]: ?")


class Errors:
    """Chooses lines; knows of each file whether a traceback goes on in it."""

    def __init__(self) -> None:
        self._inside: set[Path] = set()

    def of(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines that look like errors, and whole tracebacks."""
        worth, looks_wrong = _WORTH.search, _pattern().search
        for line in lines:
            path = line.source.path
            if path in self._inside:
                yield line
                if not _goes_on(line.text):
                    self._inside.discard(path)
            elif worth(line.text.lower()) and looks_wrong(line.text):
                yield line
                if _TRACEBACK.search(line.text):
                    self._inside.add(path)


@cache
def _pattern() -> re.Pattern[bytes]:
    """Return all texts as one, for bytes; the groups' names, which several rules share, are left out."""
    known = (re.sub(r"\(\?P<\w+>", "(?:", rule.pattern) for rule in RULES)
    return re.compile("|".join(f"(?:{text})" for text in (*_GENERAL, *known)).encode())


def _goes_on(text: bytes) -> bool:
    """Tell whether a traceback's next line follows: its last one is the first that is not indented."""
    own = _RANK.sub(b"", text)
    return own.startswith((b" ", b"\t")) or not own.strip()
