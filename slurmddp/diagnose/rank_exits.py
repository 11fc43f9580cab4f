"""How ranks ended, by the messages of their launchers: srun, torchrun, mpirun, bash and slurmddp's own. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from slurmddp.diagnose.log_reader import LogLine
from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import expand

_REPORTS: Final = (
    re.compile(
        r"^srun: error: (?P<host>[\w.,[\]-]+): tasks? (?P<tasks>[\d,-]+): "
        r"(?:Exited with exit code (?P<status>\d+)|(?P<word>.+))"
    ),
    re.compile(r"^torchrun: rank (?P<rank>\d+) \(pid \d+\) (?:was killed by (?P<word>\w+)|ended with (?P<status>\d+))"),
    re.compile(r"^rank (?P<rank>\d+) \(pid \d+\) ended with status (?P<status>\d+); stopping the others"),
    re.compile(
        r"^mpirun noticed that process rank (?P<rank>\d+) .*on node (?P<host>\S+) exited on signal (?P<signal>\d+)"
    ),
    re.compile(r"failed \(exitcode: -(?P<signal>\d{1,3})\) local_rank: \d+ \(pid: \d+\) of binary"),
    re.compile(r"CalledProcessError: Command .* died with <Signals\.(?P<word>SIG\w+): \d+>"),
    re.compile(r"^\S+: line \d+: +\d+ (?P<word>Killed|Segmentation fault|Bus error|Aborted)\b"),
)
"""How launchers report an exit; the last three do not name the rank. A group for each part: the number of the signal,
its name or its description as `word`, or the status."""
_ROOT_CAUSE: Final = "Root Cause (first observed failure):"
_ROOT_CAUSE_FIELD = re.compile(r"^[ \t]+(time|host|rank|exitcode)\s+: (\S+)", re.MULTILINE)
_ROOT_CAUSE_LINES: Final = 8
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
    match = next((found for report in _REPORTS if (found := report.search(line.text))), None)
    if match is None:
        return None
    parts = {name: text for name, text in match.groupdict().items() if text}
    signal, status = _parse_end(parts)
    host, is_task = parts.get("host", ""), "tasks" in parts
    return RankExit(
        line=line,
        number=_first_task(parts["tasks"]) if is_task else int(parts["rank"]) if "rank" in parts else None,
        host="" if "[" in host or "," in host else host,  # srun names several nodes as `gpu[01-02]`
        signal=signal,
        status=status,
        is_node=is_task and tasks_are_nodes,
    )


def _parse_end(parts: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the signal that ended a rank, or the status with which it exited by itself."""
    if "status" in parts:
        status = int(parts["status"])
        signal = _SIGNALS.get(status - _SHELL_OFFSET, "")
        return signal, None if signal else status
    if "signal" in parts:
        return _signal_name(int(parts["signal"])), None
    word = parts["word"].removesuffix(" (core dumped)")
    return _SIGNAL_WORDS.get(word, word), None


def _signal_name(number: int) -> str:
    return _SIGNALS.get(number, f"signal {number}")


def _parse_root_causes(lines: Sequence[LogLine]) -> Iterator[RankExit]:
    """Yield the root cause in torchrun's summary of a failure: the first failure that it saw."""
    for index, line in enumerate(lines):
        if line.text.strip() == _ROOT_CAUSE:
            block = lines[index + 1 : index + 1 + _ROOT_CAUSE_LINES]
            fields = dict(_ROOT_CAUSE_FIELD.findall("\n".join(one.text for one in block)))
            code = int(fields["exitcode"]) if re.fullmatch(r"-?\d{1,9}", fields.get("exitcode", "")) else 1
            yield RankExit(
                line=line,
                number=int(fields["rank"]) if fields.get("rank", "").isdecimal() else None,
                host=fields.get("host", ""),
                signal=_signal_name(-code) if code < 0 else "",
                status=code if code >= 0 else None,
                time=_parse_time(fields.get("time", "")),
            )


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
