"""The evidence that an attempt or a log has left, and the rules that its lines match. Reads files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from slurmddp.diagnose.catalogue import find_rule
from slurmddp.diagnose.flight_recorder import Divergence
from slurmddp.diagnose.log_reader import LogLine, make_evidence, modification_time, read_lines
from slurmddp.diagnose.prefixes import stream_of, strip_prefixes
from slurmddp.diagnose.rank_exits import RankExit, parse_rank_exits
from slurmddp.diagnose.rule_types import Line, Observation, Rule
from slurmddp.diagnose.tracebacks import (
    MOST_AFTER_FATAL,
    OUTLIVED_LINES,
    find_fatal_tracebacks,
    line_shape,
    ordinary_lines,
)
from slurmddp.runs.timestamps import read_timestamp

SUSPICIOUS_LINES: Final = 3
"""How many lines are shown when the cause is not known."""
_BY_SLURM: Final = re.compile(r"srun: |slurmstepd|\[\d{4}-\S+\] error: \*\*\*|\S+ slurmddp: ")
"""Lines of Slurm and slurmddp are no warnings of the program, so it cannot outlive them."""
_SUSPICIOUS_WORDS: Final = (
    *("error", "fatal", "exception", "traceback", "failed", "cannot", "abort", "panic", "denied", "invalid"),
)
_CLOSING_LINES: Final = 3
"""A batch script may print so many lines after its step."""
EVIDENCE_CHARS: Final = 300
"""How much of a long line is evidence."""
_END: Final = re.compile(
    r"srun: error: .* task|slurmstepd: error: \*\*\*|Traceback \(most|ChildFailedError|DUE TO |Root Cause"
)
"""What a start prints that ends: only after it another start can follow in the same file."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence that one attempt, or the log of one job, has left."""

    attempt: str = ""
    observations: tuple[Observation, ...] = ()
    exits: tuple[RankExit, ...] = ()
    """In the order in which the launchers reported them."""
    world_size: int = 0
    """0 if it is not known."""
    hosts: Mapping[int, str] = field(default_factory=dict)
    """The node of each rank, as far as it is known."""
    silent_ranks: tuple[int, ...] = ()
    """The ranks without an exit record, if others have one."""
    failed_count: int = 0
    """How many ranks left a record of a failure."""
    ended_well: bool = False
    stop_record: Line | None = None
    """Rank 0's record, if all ranks were told to stop."""
    continued_after_exit: bool = False
    """Whether the program printed more after the last exit that a launcher reported: its script started it again."""
    divergence: Divergence | None = None
    suspicious_lines: tuple[Line, ...] = ()
    """The first lines that look wrong; the last lines if none does."""
    has_wrong_lines: bool = True
    """Whether any line looks wrong."""

    def host_of(self, rank: int | None) -> str:
        """Return a rank's node; empty if it is not known."""
        return self.hosts.get(rank, "") if rank is not None else ""


def make_observation(
    rule: Rule, groups: Mapping[str, str], line: Line, *, time: float | None, rank: int | None, host: str = ""
) -> Observation:
    """Return the observation of a rule; a rank and a host that the line itself names replace the given ones."""
    named = groups.get("rank", "")
    line = replace(line, text=_cut_around(line.text, rule))
    is_other_rank = named.isdecimal() and int(named) != rank
    return Observation(
        rule=rule,
        what=rule.what.format(**groups).strip(": "),
        line=line,
        time=time,
        rank=int(named) if named.isdecimal() else rank,
        host=groups.get("host") or ("" if is_other_rank else host),
    )


def _cut_around(text: str, rule: Rule) -> str:
    """Return a long line cut to what stands around the rule's match."""
    match = rule.regex.search(text)
    if match is None or len(text) <= EVIDENCE_CHARS:
        return text
    start = max(0, min(match.start() - EVIDENCE_CHARS // 4, len(text) - EVIDENCE_CHARS))
    return f"{'...' if start else ''}{text[start : start + EVIDENCE_CHARS]}"


def read_time(line: LogLine, near: float) -> float | None:
    """Return the time in a line's timestamp, in seconds since 1970; None if it has none."""
    return read_timestamp((line.prefix + line.text).encode(), near=near)


def find_exception_rule(texts: Sequence[str]) -> tuple[int, Rule, Mapping[str, str]] | None:
    """Return the rule of a chain of exceptions, the index of the exception that it matches, and the groups.

    The first exception that a specific rule matches counts, else the last one that a general rule matches.
    """
    found = [(index, *match) for index, text in enumerate(texts) if (match := find_rule(text, "exception"))]
    specific = [item for item in found if not item[1].general]
    return next(iter(specific or found[-1:]), None)


def observe_tracebacks(lines: Sequence[LogLine], *, rank: int | None, host: str = "") -> Iterator[Observation]:
    """Yield an observation for each fatal traceback."""
    for traceback in find_fatal_tracebacks(lines):
        match = find_exception_rule([line.text for line in traceback.exceptions])
        if match:
            index, rule, groups = match
            if traceback.lines_after > MOST_AFTER_FATAL:
                rule = replace(rule, role="symptom" if rule.role == "cause" else rule.role, sure="likely")
            line = traceback.exceptions[index]
            evidence = make_evidence(line)
            observation = make_observation(rule, groups, evidence, time=line.time, rank=rank, host=host or line.host)
            yield replace(observation, lines_after=traceback.lines_after)


def observe_lines(
    lines: Sequence[LogLine], *, near: float | None = None, rank: int | None = None, host: str = ""
) -> Iterator[Observation]:
    """Yield the first observation of each key by the rules for any line; the time is that in the line.

    `near` is a time near it. If the program went on for long after a line, the observation is a symptom at most: the
    line may be a warning, or tell of a failure after which the program tried again.
    """
    if near is None:
        near = modification_time(lines[0].path) if lines else None
    seen: set[str] = set()
    for index, line in enumerate(lines):
        match = find_rule(line.text)
        if match and match[0].key not in seen:
            rule, groups = match
            seen.add(rule.key)
            after = None if _BY_SLURM.match(line.text) else len(ordinary_lines(lines[index + 1 :]))
            if rule.role == "cause" and after is not None and after > OUTLIVED_LINES:
                rule = replace(rule, role="symptom", sure="likely")
            time = read_time(line, near or 0.0) if line.time is None else line.time
            own_rank = line.rank if rank is None else rank
            place = host or line.host
            observation = make_observation(rule, groups, make_evidence(line), time=time, rank=own_rank, host=place)
            yield replace(observation, lines_after=after)


def find_suspicious_lines(lines: Sequence[LogLine]) -> tuple[Line, ...]:
    """Return the first lines that look wrong; the last lines if none does."""
    printed = [line for line in lines if line.text.strip()]
    wrong = [line for line in printed if _looks_wrong(line)]
    return tuple(map(make_evidence, wrong[:SUSPICIOUS_LINES] or printed[-SUSPICIOUS_LINES:]))


def _looks_wrong(line: LogLine) -> bool:
    return any(word in line.text.lower() for word in _SUSPICIOUS_WORDS)


def read_log_evidence(paths: Sequence[Path], ranks: Mapping[Path, int] | None = None) -> Evidence:
    """Return the evidence of a job that slurmddp did not submit, from its output in one file or several.

    `ranks` says which rank wrote a file, as far as that is known.
    """
    named = ranks or {}
    files = [_read_last_start(path, named.get(path)) for path in dict.fromkeys(paths)]
    lines = [line for file in files for line in file]
    numbers = [line.rank for line in lines if line.rank is not None]
    return Evidence(
        observations=tuple(observation for file in files for observation in _observe_file(file)),
        exits=tuple(parse_rank_exits(lines)),
        world_size=max(numbers, default=-1) + 1,
        suspicious_lines=find_suspicious_lines(lines),
        has_wrong_lines=any(map(_looks_wrong, lines)),
        continued_after_exit=_continues_after_exit(lines),
    )


def _read_last_start(path: Path, rank: int | None) -> list[LogLine]:
    """Return the lines of the last start in a file, each with the time of its own timestamp or the one above."""
    lines, near, time = _last_start(strip_prefixes(read_lines(path))), modification_time(path) or 0.0, None
    found = []
    for line in lines:
        own = read_time(line, near)
        time = time if own is None else own
        found.append(replace(line, time=time, rank=line.rank if rank is None else rank))
    return found


def _last_start(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the lines from the last start on, if a program was started again into the same file.

    A start is where the first two lines of the file are printed again after an end.
    """
    shapes = [line_shape(line.text) for line in lines]
    start, ended = 0, False
    for index in range(2, len(lines) - 1):
        if ended and shapes[index : index + 2] == shapes[:2]:
            start, ended = index, False
        ended = ended or _END.search(lines[index].text) is not None
    return lines[start:]


def _observe_file(lines: Sequence[LogLine]) -> Iterator[Observation]:
    """Yield what a file shows, in its order; the tracebacks of each program are read from its own lines."""
    streams: dict[str, list[LogLine]] = {}
    for line in lines:
        streams.setdefault(stream_of(line), []).append(line)
    found = [seen for part in streams.values() for seen in observe_tracebacks(part, rank=part[0].rank)]
    yield from sorted([*found, *observe_lines(lines)], key=lambda seen: seen.line.number)


def _continues_after_exit(lines: Sequence[LogLine]) -> bool:
    """Tell whether the program went on after the last exit, by more than a script's closing lines.

    srun may report an exit before it has passed on all that its tasks had printed. A program that was started again
    prints lines of the same shape as before, or several of one shape.
    """
    last = max((index for index, line in enumerate(lines) if parse_rank_exits([line])), default=len(lines))
    before, after = ([line_shape(line.text) for line in ordinary_lines(part)] for part in (lines[:last], lines[last:]))
    return len(after) > _CLOSING_LINES or len(set(after)) < len(after) or not set(before).isdisjoint(after)
