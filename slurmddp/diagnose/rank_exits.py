"""How ranks ended, by the messages of their launchers: srun, torchrun, mpirun, bash and slurmddp's own. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from slurmddp.diagnose.log_reader import LogLine
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
_BASH = re.compile(r"\S+: line \d+: +(?P<pid>\d+) (?P<word>Killed|Segmentation fault|Bus error|Aborted)\b")
_LAUNCH_AGENT = re.compile(r"failed \(exitcode: -(?P<code>\d{1,3})\) local_rank: \d+ \(pid: \d+\) of binary")
_SUBPROCESS = re.compile(r"CalledProcessError: Command .* died with <Signals\.(?P<signal>SIG\w+): \d+>")
_MPI = re.compile(
    r"mpirun noticed that process rank (?P<rank>\d+) .*on node (?P<host>\S+) exited on signal (?P<code>\d+)"
)
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
    "Out Of Memory": "out of memory",
}
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
    reported = (found for line in lines if (found := _parse_line(line, tasks_are_nodes=tasks_are_nodes)))
    return [*_parse_root_causes(lines), *reported]


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
    if match := _MPI.match(line.text):
        signal = _signal_name(int(match["code"]))
        return RankExit(line=line, number=int(match["rank"]), host=match["host"], signal=signal)
    signal = _parse_signal(line.text)
    return RankExit(line=line, number=None, signal=signal) if signal else None


def _parse_signal(text: str) -> str:
    """Return the signal that ended a process whose rank the line does not name; empty if the line is no such report."""
    if match := _LAUNCH_AGENT.search(text):
        return _signal_name(int(match["code"]))
    if match := _SUBPROCESS.search(text):
        return match["signal"]
    match = _BASH.match(text)
    return _SIGNAL_WORDS[match["word"]] if match else ""


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
            fields = dict(_root_cause_fields(lines[index + 1 : index + 9]))
            code = int(fields.get("exitcode", "1"))
            yield RankExit(
                line=line,
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
