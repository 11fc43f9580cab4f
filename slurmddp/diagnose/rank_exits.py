"""What launchers say of ranks that ended: srun, torchrun, and our own. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from slurmddp.diagnose.log_reader import Raw
from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import expand

_SRUN = re.compile(
    r"srun: error: (?P<host>[\w.,[\]-]+): tasks? (?P<tasks>[\d,-]+): "
    r"(?:Exited with exit code (?P<status>\d+)|(?P<word>.+))"
)
_ELASTIC = re.compile(
    r"torchrun: rank (?P<rank>\d+) \(pid \d+\) (?:was killed by (?P<signal>\w+)|ended with (?P<status>\d+))"
)
_FORK = re.compile(r"rank (?P<rank>\d+) \(pid \d+\) ended with status (?P<status>\d+); stopping the others")
_BASH = re.compile(r"\S+: line \d+: +(?P<pid>\d+) (?P<word>Killed|Segmentation fault|Bus error|Aborted)\b")
_AGENT = re.compile(r"failed \(exitcode: -(?P<code>\d{1,3})\) local_rank: \d+ \(pid: \d+\) of binary")
_DIED = re.compile(r"CalledProcessError: Command .* died with <Signals\.(?P<signal>SIG\w+): \d+>")
_MPI = re.compile(
    r"mpirun noticed that process rank (?P<rank>\d+) .*on node (?P<host>\S+) exited on signal (?P<code>\d+)"
)
_ROOT: Final = "Root Cause (first observed failure):"
_ITEM = re.compile(r"\s+(?:(?P<name>time|host|rank)\s+: (?P<value>\S+)|exitcode\s+: (?P<code>-?\d{1,9})\b)")
_SIGNALS: Final = {9: "SIGKILL", 11: "SIGSEGV", 7: "SIGBUS", 6: "SIGABRT", 4: "SIGILL", 15: "SIGTERM"}
_WORDS: Final = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Terminated": "SIGTERM",
    "Out Of Memory": "out of memory",
}
_SHELL: Final = 128


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A rank, or a task, that its launcher saw end badly."""

    line: Raw
    number: int | None
    """Of the rank; of the task where a task is a whole node; None where nobody said."""
    host: str = ""
    signal: str = ""
    """The signal's name, or `out of memory`; empty when it ended by itself."""
    status: int | None = None
    is_node: bool = False
    """Whether the number is that of a node's only task."""
    time: float | None = None
    count: int = 1
    """How many were told of in one line."""


def endings(lines: Sequence[Raw], *, tasks_are_nodes: bool = False) -> list[Ending]:
    """Return what launchers told, each in the order in which it told: the first line is of the first that failed."""
    return [*_of_torchrun(lines), *(found for line in lines for found in _of_line(line, tasks_are_nodes))]


def _of_line(line: Raw, tasks_are_nodes: bool) -> Iterator[Ending]:  # noqa: FBT001 - passed on
    if match := _SRUN.match(line.text):
        numbers = _numbers(match["tasks"])
        signal, status = _how(match["word"], match["status"])
        yield Ending(
            line=line, number=numbers[0], host=_host(match["host"]), signal=signal, status=status,
            is_node=tasks_are_nodes, count=len(numbers),
        )  # fmt: skip
    elif match := _ELASTIC.match(line.text) or _FORK.match(line.text):
        known = match.groupdict()
        signal, status = _how(known.get("signal"), known.get("status"))
        yield Ending(line=line, number=int(match["rank"]), signal=signal, status=status)
    elif match := _AGENT.search(line.text):
        code = int(match["code"])
        yield Ending(line=line, number=None, signal=_SIGNALS.get(code, f"signal {code}"))
    elif match := _DIED.search(line.text):
        yield Ending(line=line, number=None, signal=match["signal"])
    elif match := _MPI.match(line.text):
        signal = _SIGNALS.get(int(match["code"]), f"signal {match['code']}")
        yield Ending(line=line, number=int(match["rank"]), host=match["host"], signal=signal)
    elif match := _BASH.match(line.text):
        yield Ending(line=line, number=None, signal=_WORDS[match["word"]])


def _host(names: str) -> str:
    """Return the node; none where srun tells of tasks on several, `gpu[01-02]`."""
    return "" if "[" in names or "," in names else names


def _how(word: str | None, status: str | None) -> tuple[str, int | None]:
    """Return the signal, and the status of what ended by itself; shells add 128 to a signal's number."""
    if status is None:
        text = (word or "").removesuffix(" (core dumped)")
        return _WORDS.get(text, text), None
    number = int(status)
    return (_SIGNALS[number - _SHELL], None) if number - _SHELL in _SIGNALS else ("", number)


def _of_torchrun(lines: Sequence[Raw]) -> Iterator[Ending]:
    """Read torchrun's page about a failure: its root cause comes last, and is the first that it saw."""
    for index, line in enumerate(lines):
        if line.text.strip() == _ROOT:
            items = dict(_items(lines[index + 1 : index + 9]))
            code = int(items.get("exitcode", "1"))
            yield Ending(
                line=line,
                number=int(items["rank"]) if items.get("rank", "").isdecimal() else None,
                host=items.get("host", ""),
                signal=_SIGNALS.get(-code, f"signal {-code}") if code < 0 else "",
                status=code if code >= 0 else None,
                time=_time(items.get("time", "")),
            )


def _items(lines: Iterable[Raw]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if match := _ITEM.match(line.text):
            yield (match["name"], match["value"]) if match["name"] else ("exitcode", match["code"])


def _numbers(tasks: str) -> list[int]:
    try:
        return [int(name) for name in expand(f"[{tasks}]")]
    except UsageError:
        return [0]


def _time(text: str) -> float | None:
    """Read torchrun's `2026-11-21_23:10:00`, in the node's own zone."""
    try:
        return datetime.strptime(text, "%Y-%m-%d_%H:%M:%S").astimezone().timestamp()
    except ValueError:
        return None
