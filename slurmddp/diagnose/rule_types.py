"""The values of a diagnosis: a rule of the catalogue, where it matched, and the result. Values only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Literal

Role = Literal["cause", "symptom", "consequence"]
"""A symptom (a time-out) is the cause only if nothing better is found; a consequence is never the cause."""

Place = Literal["exception", "line", "end"]
"""Where a pattern is searched for: in the last line of an exception, in any line of output, or in the last lines of an
output that shows no cause otherwise. There the patterns for exceptions are searched for, too."""

Sure = Literal["certain", "likely", "unknown"]

UNKNOWN: Final = "unknown"
"""The cause when none was found."""
EXIT_STATUS: Final = "exit-status"
"""The cause of a program that ended with a status of its own and says no more."""
NONE: Final = "none"
"""The cause of a job that did not fail."""
NO_FAILURE: Final = frozenset({NONE, "waiting", "running", "slow", "stuck", "held"})
"""The causes of jobs that have not failed."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What a failure means, and what to do next."""

    key: str
    """The name of the cause; several rules may have the same key."""
    what: str
    """One sentence; names in braces are filled in."""
    advice: str = ""
    """What to type or to do next."""
    again: bool | None = False
    """Whether an unchanged new start can help; None if that is not known."""
    sure: Sure = "certain"

    def make_diagnosis(self, what: str, **more: Any) -> "Diagnosis":
        """Return the diagnosis of this cause, with its sentence filled in."""
        return Diagnosis(cause=self.key, what=what, sure=self.sure, advice=self.advice, again=self.again, **more)


@dataclass(frozen=True, kw_only=True)
class Rule(Cause):
    """A pattern by which a failure is recognised; the named groups of the pattern fill in the sentence."""

    pattern: str
    """A regular expression, searched for in a line without its rank's prefix."""
    example: str
    """A line that a program has really printed."""
    role: Role = "cause"
    place: Place = "exception"
    general: bool = False
    """Whether the rule is tried only after all rules that are not general."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern)

    def match(self, text: str) -> Mapping[str, str] | None:
        """Return what the pattern's named groups matched in a line; None if the pattern is not in it."""
        match = self.regex.search(text)
        return {name: value or "" for name, value in match.groupdict().items()} if match else None


line_rule = partial(Rule, place="line")
"""Makes a rule whose pattern is searched for in any line of output."""

end_rule = partial(Rule, place="end", role="symptom", sure="likely", again=None)
"""Makes a rule for the last lines of an output that shows no cause otherwise."""


@dataclass(frozen=True)
class Line:
    """A line of evidence."""

    file: str
    """The path; the name of Slurm's program for what Slurm answered."""
    number: int
    """From 1; 0 if it is not a numbered line of a file."""
    text: str

    @property
    def place(self) -> str:
        """`file:line`, which editors understand."""
        return f"{self.file}:{self.number}" if self.number else self.file


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A rule that matched a line."""

    rule: Rule
    what: str
    """The rule's sentence, filled in."""
    line: Line
    frame: Line | None = None
    """The line of its traceback that names the program's own code."""
    time: float | None = None
    """When it happened, in seconds since 1970; None if that is not known."""
    rank: int | None = None
    host: str = ""
    lines_after: int | None = None
    """How many ordinary lines the same program printed after it; None if a record or Slurm says that it was the end."""

    @property
    def is_cause(self) -> bool:
        """Whether it can be the cause of everything else."""
        return self.rule.role == "cause"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a job ended, as far as its files and Slurm say. The names of the fields are the keys of the JSON output."""

    job_id: str = ""
    name: str = ""
    cause: str
    """A rule's key; `unknown`, or `none` for a job that did not fail."""
    what: str
    """One sentence."""
    sure: Sure = "certain"
    rank: int | None = None
    """The first rank that failed; None if the cause belongs to no single rank."""
    host: str = ""
    """The node on which it failed; empty if that is not known."""
    evidence: tuple[Line, ...] = ()
    others: str = ""
    """What the other ranks show, in one sentence."""
    advice: str = ""
    """The next step: a command, or one sentence."""
    again: bool | None = None
    """Whether an unchanged new start can help; None if that is not known."""
    state: str = ""
    """The job's state as Slurm calls it."""
    attempt: str = ""
    """The attempt that the diagnosis is about, for example `1.0`."""
    before: tuple["Diagnosis", ...] = ()
    """Why earlier attempts ended, the oldest first."""
