"""What a diagnosis says, and what a rule of the catalogue is. Values only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

Role = Literal["cause", "symptom", "consequence"]
"""A symptom (something took too long) is the cause only where nothing better is found; a consequence never is."""

Place = Literal["exception", "line"]
"""Where a rule's text counts: in the last words of an exception, or in any line, as programs in C print them."""

Sure = Literal["certain", "likely", "unknown"]

UNKNOWN: Final = "unknown"
"""The cause that is not known."""
NONE: Final = "none"
"""The cause of a job that did not fail."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One text by which a failure is known."""

    key: str
    """The cause's name; several texts may tell of the same."""
    pattern: str
    """A regular expression, searched for in a line without its rank's prefix."""
    example: str
    """A line that was really printed."""
    what: str
    """One sentence; `{name}` stands for what the pattern's group of that name found."""
    advice: str = ""
    """What to type or to do next."""
    again: bool | None = False
    """Whether starting it again, unchanged, can help; None where nobody can tell."""
    role: Role = "cause"
    place: Place = "exception"
    sure: Sure = "certain"
    general: bool = False
    """Whether it speaks only where no other rule does."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern, ready to search."""
        return re.compile(self.pattern)

    def found(self, text: str) -> Mapping[str, str] | None:
        """Return what the pattern's groups found in a line; None when it is not there."""
        match = self.regex.search(text)
        return {name: value or "" for name, value in match.groupdict().items()} if match else None


@dataclass(frozen=True)
class Line:
    """A line of evidence."""

    file: str
    """The path; empty for what Slurm itself answered."""
    number: int
    """From 1; 0 where it is no line of a file."""
    text: str

    @property
    def place(self) -> str:
        """`file:line`, as editors understand it."""
        return f"{self.file}:{self.number}" if self.number else self.file


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a job ended, as far as its files and Slurm tell."""

    job_id: str
    name: str
    cause: str
    """A rule's key; `unknown`, or `none` for a job that did not fail."""
    what: str
    """One sentence."""
    sure: Sure = "certain"
    rank: int | None = None
    """The first rank that failed; None where it is none's own."""
    host: str = ""
    """The node it failed on; empty where that is unknown."""
    evidence: tuple[Line, ...] = ()
    others: str = ""
    """What the other ranks show, as one sentence."""
    advice: str = ""
    """One command, or one sentence, to go on with."""
    again: bool | None = None
    """Whether starting it again, unchanged, can help; None where nobody can tell."""
    state: str = ""
    """Slurm's word for where the job stands."""
    attempt: str = ""
    """The start of the ranks that is spoken of, as `1.0`."""
    before: tuple["Diagnosis", ...] = field(default=())
    """What earlier starts of the ranks ended of, the oldest first."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A rule's text, seen."""

    rule: Rule
    what: str
    """The rule's sentence, filled in."""
    advice: str
    line: Line
    time: float | None = None
    """When it happened, in seconds since 1970; None where nothing tells."""
    rank: int | None = None
    host: str = ""
    after: int | None = None
    """How many ordinary lines its writer printed after it; None where a record, or Slurm, says that it was the end."""

    @property
    def is_cause(self) -> bool:
        """Whether it can be what all else follows from."""
        return self.rule.role == "cause"
