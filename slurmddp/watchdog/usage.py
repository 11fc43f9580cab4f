"""What a process and those below it use: CPU time, and bytes read and written, by Linux's /proc."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slurmddp.watchdog.look import TICKS_S, read_file, read_stat


class Used(NamedTuple):
    """What was used since the process began."""

    cpu_s: float
    """CPU time of the process, without the thread that measures."""
    children_cpu_s: float
    """CPU time of the processes below it."""
    moved_bytes: int
    """What all of them have read and written, without the thread that measures."""
    is_blocked: bool
    """Whether the main thread is blocked in the kernel now: fsync(2) moves what was counted before."""
    memory_bytes: int = 0
    """Host memory of the process now."""

    def cpus_since(self, before: "Used", took_s: float) -> float:
        """Return the CPUs used in `took_s` seconds; the time of a process below may be gone with it."""
        return (self.cpu_s - before.cpu_s + max(0.0, self.children_cpu_s - before.children_cpu_s)) / took_s


def measure() -> Used:
    """Return what this process and those below it have used until now."""
    times = os.times()
    children_s, moved = times.children_user + times.children_system, _moved("self") - _moved("thread-self")
    for pid in descendants("self"):
        children_s += sum(map(int, read_stat(pid)[11:15])) / TICKS_S
        moved += _moved(pid)
    own_s, memory = time.process_time() - time.thread_time(), int(read_file("/proc/self/statm").split()[1])
    return Used(own_s, children_s, moved, read_stat("self")[0] == "D", memory * os.sysconf("SC_PAGE_SIZE"))


def descendants(pid: str) -> Iterator[str]:
    """Yield the ids of all processes below one, whose id may be `self`."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in read_file(f"{task}/children").split():
                yield child
                yield from descendants(child)


def _moved(pid: str) -> int:
    """Return the bytes of the calls that read and write, and of the disk (proc_pid_io(5))."""
    values = [int(line.split()[1]) for line in read_file(f"/proc/{pid}/io").splitlines()]
    return sum(values[:2] + values[4:6])
