"""What a process and those below it use: CPU time, and bytes read and written, by Linux's /proc."""

from __future__ import annotations
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

TICKS_S: Final = os.sysconf("SC_CLK_TCK")
"""The kernel's units of CPU time in a second."""


def descendants(pid: str, read: Callable[[str], bytes] = lambda path: Path(path).read_bytes()) -> Iterator[str]:
    """Yield the ids of all processes below one, whose id may be `self`."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in read(f"{task}/children").decode().split():
                yield child
                yield from descendants(child, read)


class Used(NamedTuple):
    """What was used since the process began."""

    cpu_s: float
    """CPU time of the process, without the thread that measures."""
    children_cpu_s: float
    moved_bytes: int


class Usage:
    """What this process and those below it use, less what it takes to find out."""

    def __init__(self) -> None:
        self._read_bytes = 0

    def measure(self) -> Used:
        """Return what was used until now."""
        times = os.times()
        cpu_s, moved = times.children_user + times.children_system, self._moved("self")
        for pid in descendants("self", self._read):
            with suppress(OSError, IndexError, ValueError):
                cpu_s += sum(map(int, self._stat(f"/proc/{pid}")[11:15])) / TICKS_S
            moved += self._moved(pid)
        return Used(time.process_time() - time.thread_time(), cpu_s, moved - self._read_bytes)

    def is_blocked(self) -> bool:
        """Return whether one of the processes is blocked in the kernel now: fsync(2) moves what was counted."""
        with suppress(OSError):
            below = (f"/proc/{pid}" for pid in descendants("self", self._read))
            tasks = map(str, Path("/proc/self/task").iterdir())
            return any(self._stat(folder)[:1] == [b"D"] for folder in (*tasks, *below))
        return False

    def _stat(self, folder: str) -> list[bytes]:
        """Return the fields of proc_pid_stat(5) from the state on."""
        return self._read(f"{folder}/stat").rpartition(b")")[2].split()

    def _moved(self, pid: str) -> int:
        with suppress(OSError, IndexError, ValueError):
            values = [int(line.split()[1]) for line in self._read(f"/proc/{pid}/io").splitlines()[:6]]
            return values[0] + values[1] + values[4] + values[5]
        return 0

    def _read(self, path: str) -> bytes:
        found = Path(path).read_bytes()
        self._read_bytes += len(found)
        return found
