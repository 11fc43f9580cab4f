"""Finding: what a check has found, as a value that both sides of a job share. No I/O; standard library only."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["ok", "note", "warning", "error"]

SERIOUS: Final = ("warning", "error")
"""The levels that somebody must hear of."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at: what is so, why it matters, and what to type."""

    check: str
    """One word: what was looked at."""
    level: Level
    """`error` is what certainly breaks the job; `warning` may, or costs time; a `note` is good to know."""
    what: str
    why: str = ""
    advice: str = ""
    host: str = ""
    """The node on which it is so; empty where it is none's own."""
    rank: int | None = None
    """The rank that it is about; None where it is none's own."""
    status: int = 1
    """For an error, the exit status of the command that found it: 2 wrong by itself, 3 ruled out by the cluster."""

    @property
    def place(self) -> str:
        """Where it is so: `rank 3 on n2`, `n2`, or nothing."""
        if self.rank is None:
            return self.host
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank}"

    @property
    def line(self) -> str:
        """All of it in one line."""
        told = ": ".join(filter(None, (self.place, self.what)))
        return "; ".join(filter(None, (told, self.why, self.advice)))


def worst(findings: Iterable[Finding]) -> int:
    """Return the exit status for these: 0 without an error, else 2 if one is wrong by itself, then 3, then 1."""
    statuses = {finding.status for finding in findings if finding.level == "error"}
    return next((status for status in (2, 3, 1) if status in statuses), 0)
