"""Finds lines that look like errors. Pure; `slurmddp.diagnose` finds their cause."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import re2

from slurmddp.diagnose.rule_types import quiet_options
from slurmddp.diagnose.rules import load_rules

_GENERAL: Final = (
    r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL|Traceback|Killed|Aborted|core dumped)\b",
    r"[A-Za-z.](?:Error|Exception)(?:[^\w =]| +[^\s=]| *$)",
    r"^(?:\[rank\d+\]:)?\s?\[?[EF]\d{4} \d\d:",
    r"slurmddp: .* status [1-9]",
)
"""Beside the texts of known failures; the third is glog's."""
_TRACEBACK: Final = re.compile(rb"Traceback \(most recent call last\):")
_RANK: Final = re.compile(rb"^\[rank\d+\]: ?")


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
        if not _pattern().search(text.rstrip(b"\r\n")):
            return False
        if _TRACEBACK.search(text):
            self._inside.add(path)
        return True


@cache
def _pattern() -> Any:
    """Return what finds any of the texts in the bytes of a line, by one automaton, in linear time."""
    options = quiet_options()
    options.encoding = re2.Options.Encoding.LATIN1
    rules = (rule for rule in load_rules().own if rule.key != "exception" or not rule.general)  # it takes any word
    known = (pattern for rule in rules for pattern in rule.patterns)
    texts = (re.sub(r"\(\?P<\w+>", "(?:", text) for text in (*_GENERAL, *known))  # several rules share names of groups
    return re2.compile("|".join(f"(?:{text})" for text in texts).encode(), options)
