"""The findings of checks, before submission or in a job, and the files with their texts. Standard library only."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from slurmddp.old_python import dataclass

Level = Literal["ok", "note", "warning", "error"]

SERIOUS: Final = ("warning", "error")
"""Levels that are always shown."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check: what was found, why it matters, and what to type."""

    check: str
    """The check's name, one word."""
    level: Level
    """An `error` certainly breaks the job; a `warning` may break it or costs time; a `note` is only information."""
    what: str
    why: str = ""
    advice: str = ""
    host: str = ""
    """The node that it is about; empty when it is about no single node."""
    rank: "int | None" = None
    """The rank that it is about; None when it is about no single rank."""
    status: int = 1
    """For an error, the exit status of the command that found it: 2 wrong by itself, 3 ruled out by the cluster."""

    @property
    def place(self) -> str:
        """Rank and node: `rank 3 on n2`, `n2`, or empty."""
        rank = "" if self.rank is None else f"rank {self.rank}"
        return " on ".join(filter(None, (rank, self.host)))

    @property
    def line(self) -> str:
        """The whole finding in one line."""
        what = ": ".join(filter(None, (self.place, self.what)))
        return "; ".join(filter(None, (what, self.why, self.advice)))


class Catalogue:
    """The file of all that some checks can find; it is read when the first finding is made."""

    def __init__(self, path: Path, parse: Callable[[str], Mapping[str, Any]]) -> None:
        self._path, self._parse = path, parse

    @cached_property
    def texts(self) -> Mapping[str, Mapping[str, Any]]:
        """By check and case, the fields of the finding; names in braces are values."""
        return self._parse(self._path.read_text("utf-8"))

    def finding(self, check: str, case: str, **values: Any) -> Finding:
        """Return the finding of a check in this case, with the values in its texts; some are themselves fields."""
        fields = dict(self.texts[check][case])
        fields |= {key: text.format_map(values) for key, text in fields.items() if isinstance(text, str)}
        fields |= {key: values[key] for key in ("host", "rank", "level") if key in values}
        return Finding(check=check, **fields)


def worst(findings: Iterable[Finding]) -> int:
    """Return the exit status for these: 0 without an error, else 2 if one is wrong by itself, then 3, then 1."""
    statuses = {finding.status for finding in findings if finding.level == "error"}
    return next((status for status in (2, 3, 1) if status in statuses), 0)
