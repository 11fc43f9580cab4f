"""The values of a diagnosis: a rule, where it matched, and the result, also as lines for a terminal. Values only.

The patterns of rules are RE2's (https://github.com/google/re2/wiki/Syntax), which match any line in linear time: a log
is what any program, or a stranger, has printed. There is no look-ahead and no look-behind: `unless` says what is not
meant.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final, Literal

import msgspec
import re2

from slurmddp.text import escape_text

Role = Literal["cause", "symptom", "consequence"]
"""A symptom (a time-out) is the cause only if nothing better is found; a consequence is never the cause."""

Place = Literal["exception", "line", "end"]
"""Where a pattern is searched for: in the last line of an exception, in any line of output, or in the last lines of an
output that shows no cause otherwise. There the patterns for exceptions are searched for, too."""

Sure = Literal["certain", "likely", "unknown"]

Node = Literal["", "proof", "hint", "connection"]
"""A proof is enough to leave the node out at the next start, of hints it takes two from different runs. A connection
has two ends: the node that is an end of all that failed is meant."""

Trait = Literal[
    "lost peer", "waited", "hung", "vague", "by hand", "by Slurm", "state", "teardown", "any text"
]  # fmt: skip
"""What else the verdict must know of a cause; docs/new-rules.md says what each means."""

UNKNOWN: Final = "unknown"  # the cause when none was found
EXIT_STATUS: Final = "exit-status"  # the cause of a program that ended with a status of its own and says no more
NONE: Final = "none"  # the cause of a job that did not fail
RESUME: Final = "submit it again; a program that finds its checkpoint continues there"
"""Advice after a stop from outside, also in rules: for a job of a run, the diagnosis names the command instead."""
NO_FAILURE: Final = frozenset({NONE, "waiting", "running", "slow", "hanging", "held"})  # of jobs that have not failed
SHOWN_CHARS: Final = 300  # how much of a line of evidence, and of the cause, is shown
SHOWN_END: Final = 100
_OPTIONS: Final = re2.Options()
"""No messages on stderr, and memory for all patterns at once."""
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 2**26
_AGAIN: Final = {True: ["starting it again can help"], False: ["starting it again would end the same way"], None: []}


@cache
def compile_regex(pattern: str) -> Any:
    """Return a pattern compiled by RE2. Raises ValueError with its reason, as for a look-ahead."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"RE2 does not take the regex {pattern}: {reason}") from error


def compile_set(patterns: Iterable[str]) -> Any:
    """Return patterns as one automaton of RE2, whose `Match` returns the numbers of those that a text has."""
    found = re2.Set.SearchSet(_OPTIONS)
    for pattern in patterns:
        found.Add(pattern)
    found.Compile()
    return found


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A pattern, a state or an end by which a cause is recognised; what it means, and what to do next.

    Has exactly one of `regex`, `state` and `end`.
    """

    key: str  # the name of the cause; several rules may have the same key
    what: str  # one sentence; names in braces are filled in by the named groups of the regex
    advice: str = ""  # what to type or to do next
    link: str = ""  # the address of a page that says more
    again: bool | Literal["unknown"] = False  # whether an unchanged new start can help
    sure: Sure = "certain"
    role: Role = "cause"
    regex: str | tuple[str, ...] = ()  # of several the first that matches counts
    unless: str = ""  # a regular expression: a line with it is not meant
    example: str = ""  # a line that a program has really printed
    place: Place = "line"
    general: bool = False  # whether the rule is tried only after all rules that are not general
    state: str = ""  # Slurm's state of a job, or state and exit code. `{nodes}` and `{by}` are filled in
    node: Node = ""  # what it says of the node on which it happened first
    traits: tuple[Trait, ...] = ()
    beats: tuple[str, ...] = ()  # beside it these causes are none: it ended the job before, or Slurm ended it for it
    signals: tuple[str, ...] = ()  # it makes the kernel or Slurm send these signals, or a library crash
    end: str = ""  # the signal that ended a rank, `status`, `step`, `silent` or `launcher`. `{status}` is filled in

    def __post_init__(self) -> None:
        """Raise ValueError for fields that do not go together."""
        if sum(map(bool, (self.regex, self.state, self.end))) != 1:
            raise ValueError("it needs a regex, or else a state or an end")
        if self.regex and not self.example:
            raise ValueError("its regex needs an example: a line that a program has printed")

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns as they are written."""
        return (self.regex,) if isinstance(self.regex, str) else self.regex

    @cached_property
    def regexes(self) -> tuple[Any, ...]:
        """The compiled patterns; only those of the rules that match a line are needed."""
        return tuple(map(compile_regex, self.patterns))

    def search(self, text: str) -> Any:
        """Return where a line matches, as `re.Match`; None if it does not, or is not meant."""
        match = next((match for regex in self.regexes if (match := regex.search(text))), None)
        return None if match and self.unless and compile_regex(self.unless).search(text) else match

    def match(self, text: str) -> Mapping[str, str] | None:
        """Return what the named groups matched in a line, empty for the others; None if the line is not meant."""
        if (match := self.search(text)) is None:
            return None
        found = match.groupdict()
        return {name: found.get(name) or "" for regex in self.regexes for name in regex.groupindex}

    def make_diagnosis(self, what: str, *, sure: Sure | None = None, **more: Any) -> "Diagnosis":
        """Return the diagnosis of this cause, with its sentence filled in."""
        again = None if self.again == "unknown" else self.again
        advice = "; see ".join(filter(None, (self.advice, self.link)))
        return Diagnosis(cause=self.key, what=what, sure=sure or self.sure, advice=advice, again=again, **more)


@dataclass(frozen=True)
class Line:
    """A line of evidence."""

    file: str  # the path; the name of Slurm's program for what Slurm answered
    number: int  # from 1; 0 if it is not a numbered line of a file
    text: str

    @property
    def place(self) -> str:
        """`file:line`, which editors understand."""
        return f"{self.file}:{self.number}" if self.number else self.file


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A rule that matched a line."""

    rule: Rule
    role: Role
    sure: Sure
    what: str  # the rule's sentence, filled in
    line: Line
    groups: Mapping[str, str] = field(default_factory=dict)  # what the groups of its regex matched
    frame: Line | None = None  # the line of its traceback that names the program's own code
    time: float | None = None  # when it happened, in seconds since 1970; None if that is not known
    rank: int | None = None
    host: str = ""
    lines_after: int | None = None  # how many ordinary lines it printed after it; None if it was the end
    ran_on: bool = False  # whether its program, or the batch script, ran on after it: then it is no cause

    @property
    def is_cause(self) -> bool:
        """Whether it can be the cause of everything else."""
        return self.role == "cause"

    def has(self, *traits: Trait) -> bool:
        """Return whether its cause has any of these traits."""
        return not set(traits).isdisjoint(self.rule.traits)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a job ended, as far as its files and Slurm say. The names of the fields are the keys of the JSON output."""

    job_id: str = ""
    name: str = ""
    cause: str  # a rule's key; `unknown`, or `none` for a job that did not fail
    what: str  # one sentence
    sure: Sure = "certain"
    rank: int | None = None  # the first rank that failed; None if the cause belongs to no single rank
    host: str = ""  # the node on which it failed; empty if that is not known
    evidence: tuple[Line, ...] = ()
    others: str = ""  # what the other ranks show, in one sentence
    advice: str = ""  # the next step: a command, or one sentence
    again: bool | None = None  # whether an unchanged new start can help; None if that is not known
    state: str = ""  # the job's state as Slurm calls it
    attempt: str = ""  # the attempt that the diagnosis is about, for example `1.0`
    before: tuple["Diagnosis", ...] = ()  # why earlier attempts ended, the oldest first


def format_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Return the lines: the cause first, then the evidence, and at the end the advice and earlier attempts."""
    same_name = diagnosis.name == diagnosis.job_id
    name = diagnosis.job_id if same_name else f"{diagnosis.name} (job {diagnosis.job_id})"
    state = f", {diagnosis.state}" if diagnosis.state else ""
    rank = f"rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    host = f" on {diagnosis.host}" if diagnosis.host else ""
    attempt = f", attempt {diagnosis.attempt}" if diagnosis.attempt else ""
    lines = [
        f"{name}{state}: {_format_cause(diagnosis)}",
        *([f"first:{rank and f' {rank}'}{host}{attempt}"] if rank or host else []),
        *(f"  {line.place}: {_shorten(line.text)}" for line in diagnosis.evidence),
        *([f"others: {diagnosis.others}"] if diagnosis.others else []),
        *([f"next: {diagnosis.advice}"] if diagnosis.advice else []),
        *(_AGAIN[diagnosis.again] if diagnosis.cause not in NO_FAILURE else []),
        *(f"before, attempt {earlier.attempt}: {_format_cause(earlier)}" for earlier in diagnosis.before),
    ]
    return [escape_text(line) for line in lines]


def _format_cause(diagnosis: Diagnosis) -> str:
    what, likely = _shorten(diagnosis.what), ", likely" if diagnosis.sure == "likely" else ""
    return what if diagnosis.cause in NO_FAILURE else f"{what} [{diagnosis.cause}{likely}]"


def _shorten(text: str) -> str:
    """Return the head and the end of a long text: a message may say at its end what is wrong."""
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - SHOWN_END]} ... {text[-SHOWN_END:]}"
