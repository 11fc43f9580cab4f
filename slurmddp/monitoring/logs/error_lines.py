"""Finds lines that look like errors, and those of them that matter. Pure; `slurmddp.diagnose` finds their cause."""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from slurmddp.diagnose.line_meanings import HEADER, means
from slurmddp.diagnose.rule_types import compile_set
from slurmddp.diagnose.rules import find_rule, load_rules
from slurmddp.monitoring.logs.merge import Line
from slurmddp.runs.log_tail import relative_path

MOST_DECISIVE: Final = 8
_GENERAL: Final = (
    r"\b(?:[Ee]rror|ERROR|[Ff]atal|FATAL|CRITICAL|Traceback|Killed|Aborted|core dumped)\b",
    r"[A-Za-z.](?:Error|Exception)(?:[^\w =]| +[^\s=]| *$)",
    r"^(?:\[rank\d+\]:)?\s?\[?[EF]\d{4} \d\d:",
    r"slurmddp: .* status [1-9]",
)
"""Beside the texts of known failures; the third is glog's."""
_RANK: Final = re.compile(rb"^\[rank\d+\]: ?")


def keep_decisive(printed: Iterable[Line], evidence: Container[tuple[str, int]]) -> tuple[list[Line], int]:
    """Return at most MOST_DECISIVE of the lines, in their order, and how many more there are.

    Those of the `evidence`, by path and number, come before all others; then the program's own lines in its traceback;
    then those that are not indented, that are no consequence and of no usual end, and that no line before repeats. Of
    the rest none stands before the evidence.
    """
    lines = [*printed]
    texts = [_RANK.sub(b"", line.text).decode("utf-8", "replace").rstrip() for line in lines]
    reasons = {at for at, line in enumerate(lines) if (relative_path(line.source.path), line.number) in evidence}
    found = [{*_find_own_frames(texts, reason)} for reason in reasons]
    own = {at for frames in found if frames & reasons for at in frames}
    first = {text: index for index, text in reversed([*enumerate(texts)])} | {texts[at]: at for at in reasons | own}

    def weigh(index: int) -> tuple[bool, bool, bool, int]:
        text = texts[index]
        rule = find_rule(text)
        is_vague = first[text] != index or text.startswith((" ", "\t")) or means(text, "closing")
        is_vague = is_vague or bool(rule and rule[0].role == "consequence")
        return index not in reasons, index not in own, is_vague, index

    weighed = sorted(map(weigh, range(len(lines))))
    begin = min(reasons | own, default=0)
    kept = sorted(index for *_, is_vague, index in weighed[:MOST_DECISIVE] if index >= begin or not is_vague)
    return [lines[index] for index in kept], len(lines) - len(kept)


def _find_own_frames(texts: Sequence[str], exception: int) -> Iterator[int]:
    """Yield the program's own frames in the traceback above an exception, and its first line."""
    for at in reversed(range(exception)):
        is_head = texts[at].endswith(HEADER)
        if is_head or (means(texts[at], "frame") and not means(texts[at], "library")):
            yield at
        if is_head or not texts[at].startswith(" "):
            return


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
        if not _pattern().Match(text.decode("utf-8", "replace").rstrip("\r\n")):
            return False
        if HEADER.encode() in text:
            self._inside.add(path)
        return True


@cache
def _pattern() -> Any:
    """Return what finds any of the texts in a line, by one automaton, in linear time."""
    rules = (rule for rule in load_rules().own if rule.key != "exception" or not rule.general)  # it takes any word
    return compile_set([*_GENERAL, *(pattern for rule in rules for pattern in rule.patterns)])
