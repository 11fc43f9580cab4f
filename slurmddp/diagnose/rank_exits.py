"""How ranks ended, by the messages of their launchers: srun, torchrun, mpirun, bash and slurmddp's own. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from slurmddp.diagnose.log_reader import LogLine, cut_around
from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import expand

_SRUN = re.compile(
    r"srun: error: (?P<host>[\w.,[\]-]+): tasks? (?P<tasks>[\d,-]+): "
    r"(?:Exited with exit code (?P<status>\d+)|(?P<word>.+))"
)
_TORCHRUN = re.compile(
    r"torchrun: rank (?P<rank>\d+) \(pid \d+\) (?:was killed by (?P<signal>\w+)|ended with (?P<status>\d+))"
)
_FORK = re.compile(r"rank (?P<rank>\d+) \(pid \d+\) ended with status (?P<status>\d+); stopping the others")
_SHELL = re.compile(
    r"(?:\S+: line \d+: +\d+ |^\[\d+\] +(?:\+ +)?\d+ |^zsh: )"
    r"(?P<word>[Kk]illed|[Ss]egmentation fault|[Bb]us error|[Aa]bort(?:ed)?|[Ii]llegal (?:hardware )?instruction)\b"
)
_LAST_WORD = re.compile(
    r"(?:^|[])%|/]) ?(?P<word>Killed|Segmentation fault|Bus error|Aborted|Illegal instruction|Terminated)"
    r"(?: \(core dumped\))?$"
)
_PROMPT = re.compile(r"(?:\([\w.-]+\) ?)?[\w\[].*[@:~\]].*[$#%>](?: |$)|(?:real|user|sys)\s+\d|\W*$")
_CODE = re.compile(
    r"(?i:return ?code|exit ?code|exit status|exited with(?: code)?)[ =:]*(?P<code>-(?:4|6|7|9|11)|"
    r"13[24579])(?![\w.,]\d)\b|"
    r"(?i:WTERMSIG|(?:killed|terminated|interrupted) by signal:?|received signal:?|caught signal|failed with signal|"
    r"EXIT STRING.*\(signal) "
    r"(?P<number>4|6|7|9|11)\b|\b[Ss]ignal (?P<told>4|6|7|9|11) \((?!SIG\w+\) received by)"
)
_SIGNAL = re.compile(
    r"(?:(?:terminated|died|killed|received|crashed|exited)(?: with| by| on| due to)?(?: signal)? <?(?:Signals\.)?|"
    r"exit codes? .*|\*\*\* |Signal \d+ \()"
    r"(?P<signal>SIG(?:KILL|SEGV|ABRT|BUS|ILL))\b(?! by OOM| or )"
)
_SPAWN = re.compile(r"\S*ProcessExitedException: process (?P<rank>\d+) terminated with signal (?P<signal>SIG\w+)")
_MPI = re.compile(r"\w+ noticed that process rank (?P<rank>\d+) .*on node (?P<host>\S+) exited on signal (?P<code>\d+)")
_ROOT_CAUSE: Final = "Root Cause (first observed failure):"
_ROOT_CAUSE_FIELD = re.compile(r"\s+(?:(?P<name>time|host|rank)\s+: (?P<value>\S+)|exitcode\s+: (?P<code>-?\d{1,9})\b)")
_SIGNALS: Final = {9: "SIGKILL", 11: "SIGSEGV", 7: "SIGBUS", 6: "SIGABRT", 4: "SIGILL", 15: "SIGTERM"}
_SIGNAL_WORDS: Final = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Terminated": "SIGTERM",
    "Abort": "SIGABRT",
    "Illegal hardware instruction": "SIGILL",
    "Out Of Memory": "out of memory",
}
_LAST_LINES: Final = 5
"""A shell names a signal in one of so many lines at the end, below which are only its prompts."""
_ONE_FAILURE_S: Final = 3600.0
"""The launchers of all nodes report a failure within this time: a rank can wait half an hour for its peer."""
_SHELL_OFFSET: Final = 128
"""A shell's exit status for a command that a signal ended is this plus the number of the signal."""


@dataclass(frozen=True, kw_only=True)
class RankExit:
    """A rank or a task that its launcher saw fail."""

    line: LogLine
    number: int | None
    """The number of the rank, or of the task if a task is a whole node; None if the launcher does not name it."""
    host: str = ""
    signal: str = ""
    """The name of the signal that ended it, or `out of memory`; empty if it exited by itself."""
    status: int | None = None
    is_node: bool = False
    """Whether `number` is that of a task that is a whole node."""
    time: float | None = None


def parse_rank_exits(lines: Sequence[LogLine], *, tasks_are_nodes: bool = False) -> list[RankExit]:
    """Return the exits that launchers report, torchrun's root causes first, else in the order of the lines.

    Each launcher reports the rank first that failed first.
    """
    causes = _earliest_first([*_parse_root_causes(lines)])
    others = (line for line in lines if not (causes and _ROOT_CAUSE_FIELD.match(line.text)))
    reported = (found for line in others if (found := _parse_line(line, tasks_are_nodes=tasks_are_nodes)))
    return [*causes, *reported, *_parse_last_line(lines)]


def _parse_last_line(lines: Sequence[LogLine]) -> Iterator[RankExit]:
    """Yield the exit that a shell prints among the last lines, without a rank: `Killed`, also behind a progress bar."""
    last = next((line for line in reversed(lines[-_LAST_LINES:]) if not _PROMPT.match(line.text)), None)
    if last and (match := _LAST_WORD.search(last.text.strip())):
        yield RankExit(line=last, number=None, signal=_SIGNAL_WORDS[match["word"]])


def _earliest_first(causes: list[RankExit]) -> list[RankExit]:
    """Return the root causes of one failure in their order in time, without those of failures long before the last."""
    last = max((cause.time for cause in causes if cause.time is not None), default=None)
    if last is None:
        return causes
    timed = [cause for cause in causes if cause.time is not None and cause.time > last - _ONE_FAILURE_S]
    return sorted(timed, key=lambda cause: cause.time or 0.0)


def _parse_line(line: LogLine, *, tasks_are_nodes: bool) -> RankExit | None:
    if match := _SRUN.match(line.text):
        signal, status = _parse_end(match["word"], match["status"])
        return RankExit(
            line=line,
            number=_first_task(match["tasks"]),
            host=_single_host(match["host"]),
            signal=signal,
            status=status,
            is_node=tasks_are_nodes,
        )
    if match := _TORCHRUN.match(line.text) or _FORK.match(line.text):
        groups = match.groupdict()
        signal, status = _parse_end(groups.get("signal"), groups.get("status"))
        return RankExit(line=line, number=int(match["rank"]), signal=signal, status=status)
    if match := _SPAWN.match(line.text):
        return RankExit(line=line, number=int(match["rank"]), signal=match["signal"])
    if match := _MPI.match(line.text):
        signal = _signal_name(int(match["code"]))
        return RankExit(line=line, number=int(match["rank"]), host=match["host"], signal=signal)
    if match := _CODE.search(line.text) or _SIGNAL.search(line.text) or _SHELL.search(line.text):
        shown = replace(line, text=cut_around(line.text, match.start()))
        return RankExit(line=shown, number=None, signal=_signal_of(match.groupdict()))
    return None


def _signal_of(groups: Mapping[str, str | None]) -> str:
    """Return the signal that a report names by its name, its number, an exit code, or the word of a shell."""
    if word := groups.get("word"):
        return _SIGNAL_WORDS[word.capitalize()]
    number = abs(int(groups.get("code") or groups.get("number") or groups.get("told") or 0))
    return groups.get("signal") or _signal_name(number - _SHELL_OFFSET if number > _SHELL_OFFSET else number)


def _signal_name(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")


def _single_host(names: str) -> str:
    """Return the node; empty if srun names several, for example `gpu[01-02]`."""
    return "" if "[" in names or "," in names else names


def _parse_end(word: str | None, status: str | None) -> tuple[str, int | None]:
    """Return the signal that ended a rank, or the status with which it exited by itself."""
    if status is None:
        text = (word or "").removesuffix(" (core dumped)")
        return _SIGNAL_WORDS.get(text, text), None
    number = int(status)
    signal = _SIGNALS.get(number - _SHELL_OFFSET, "")
    return (signal, None) if signal else ("", number)


def _parse_root_causes(lines: Sequence[LogLine]) -> Iterator[RankExit]:
    """Yield the root cause in torchrun's summary of a failure: the first failure that it saw."""
    for index, line in enumerate(lines):
        if line.text.strip() == _ROOT_CAUSE:
            below = lines[index + 1 : index + 9]
            fields = dict(_root_cause_fields(below))
            code = int(fields.get("exitcode", "1"))
            yield RankExit(
                line=next((one for one in below if one.text.strip().startswith("exitcode")), line),
                number=int(fields["rank"]) if fields.get("rank", "").isdecimal() else None,
                host=fields.get("host", ""),
                signal=_signal_name(-code) if code < 0 else "",
                status=code if code >= 0 else None,
                time=_parse_time(fields.get("time", "")),
            )


def _root_cause_fields(lines: Iterable[LogLine]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if match := _ROOT_CAUSE_FIELD.match(line.text):
            yield (match["name"], match["value"]) if match["name"] else ("exitcode", match["code"])


def _first_task(tasks: str) -> int:
    """Return the first of srun's task numbers, for example of `4-7`."""
    try:
        return int(expand(f"[{tasks}]")[0])
    except UsageError:
        return 0


def _parse_time(text: str) -> float | None:
    """Return the time of torchrun's `2026-11-21_23:10:00`, which is local, in seconds since 1970."""
    try:
        return datetime.strptime(text, "%Y-%m-%d_%H:%M:%S").astimezone().timestamp()
    except ValueError:
        return None
