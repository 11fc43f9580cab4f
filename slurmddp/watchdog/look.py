"""Looks at the ranks of a job on one node: where each stands in its program, also when it hangs. Standard library only.

    python -m slurmddp.watchdog.look JOB ATTEMPT

It finds the ranks of this attempt among the processes of this user on this machine, and prints for each a line of JSON:

    {"rank": 3, "host": "n2", "pid": 71, "state": "S", "wchan": "futex_wait", "cpu_s": 8.1, "why_no_stack": "",
     "stack": [{"file": "/home/me/train.py", "line": 81, "function": "train"}, ...], ...}

The stack is that of the main thread, the innermost frame first; null where there is none, and then `why_no_stack` says
why.

At its start a rank opens a file in memory, whose first line says which rank it is, of which attempt, and a pipe. A
process is asked only if it has this file, under the number that the file itself says: it is no child that has inherited
it, and nothing else has got its number since. A thread of the rank waits for a byte in the pipe, and then has
faulthandler write all stacks to the file: with the GIL, for nothing may change them meanwhile.

Where no answer comes, C code holds the GIL. Then a signal lets faulthandler write without it. It is not sent before: in
a thread that goes on, faulthandler would follow frames that are no longer there, which ends the process by SIGSEGV
(seen with Python 3.11, after some thousand signals). What the rank was doing goes on (SA_RESTART).
"""

import ctypes
import faulthandler
import fcntl
import json
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

NAME: Final = "slurmddp-stacks"
SIGNAL: Final = signal.SIGRTMAX - 1
ANSWER_LIMIT_S: Final = 3.0
"""For all ranks of a node together."""
_GIL_LIMIT_S: Final = 1.0
"""A thread gets the GIL within 5 ms (sys.setswitchinterval), unless C code holds it."""
_HANDLER_S: Final = 0.3
_END: Final = "end of the stacks\n"
_POLL_S: Final = 0.01
_CLOSE_ON_EXEC: Final = 1  # MFD_CLOEXEC
_OWN: Final = ("file", "asked", "pipe", "thread")
_LINK: Final = f"/memfd:{NAME} "
_BIT: Final = 1 << (SIGNAL - 1)
TICKS_S: Final = os.sysconf("SC_CLK_TCK")
"""The kernel's units of CPU time in a second."""
_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x0*([0-9a-f]+)\b.* \(most recent call first\):$")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def register(**identity: Any) -> None:
    """Let this process show where it stands, as the rank that `identity` names; it must have `job` and `attempt`.

    The main thread of the process calls it. Where the system has no files in memory, nothing happens.
    """
    with suppress(OSError, AttributeError, ValueError):
        # os.memfd_create is missing in a Python that was built for an older Linux
        file, (asked, _) = ctypes.CDLL(None).memfd_create(NAME.encode(), _CLOSE_ON_EXEC), os.pipe()
        pipe = str(Path(f"/proc/self/fd/{asked}").readlink())
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        own = {"pid": os.getpid(), "file": file, "asked": asked, "pipe": pipe, "thread": f"{threading.get_ident():x}"}
        os.write(file, json.dumps({**identity, **own}).encode() + b"\n")
        faulthandler.register(SIGNAL, file=file, all_threads=True)
        threading.Thread(target=_answer, args=(file, asked, pipe), name="stacks", daemon=True).start()


def _answer(file: int, asked: int, pipe: str) -> None:
    """Write all stacks to the file for each byte in the pipe, until the program closes either."""
    with suppress(OSError):
        while str(Path(f"/proc/self/fd/{asked}").readlink()) == pipe and os.read(asked, 1):
            faulthandler.dump_traceback(file)
            os.write(file, _END.encode())


class Found:
    """A rank's process on this machine."""

    def __init__(self, pid: int, identity: dict[str, Any], head: int) -> None:
        self.pid = pid
        self.identity = identity
        """What it has registered with."""
        self._fd = f"/proc/{pid}/fd"
        self._head = head
        self._file = -1
        self._signal_at = self._signal_limit = math.inf
        self.why_no_stack = ""

    def ask(self, deadline: float) -> None:
        """Ask for the stack; `answer` waits for it. What an earlier look has left is removed."""
        try:
            state = read_stat(self.pid)[0]
            if state in "XZ":
                self.why_no_stack = "it has ended"
            elif state in "Tt":
                self.why_no_stack = "it is stopped by a signal or a debugger"
            else:
                self._file = os.open(f"{self._fd}/{self.identity['file']}", os.O_RDWR | os.O_CLOEXEC)
                _lock(self._file, deadline)
                os.ftruncate(self._file, self._head)
                self._signal_at = time.monotonic() + _GIL_LIMIT_S
                pipe = f"{self._fd}/{self.identity['asked']}"
                if os.readlink(pipe) == self.identity["pipe"]:  # noqa: PTH115 - as text
                    with open(pipe, "ab", buffering=0) as asking:  # noqa: PTH123
                        asking.write(b"?")
        except BlockingIOError:
            self.why_no_stack = "another look at it has not ended"
        except OSError:
            self.why_no_stack = "it has ended"

    def answer(self, deadline: float) -> "list[dict[str, Any]] | None":
        """Return the frames of the main thread, the innermost first; None when there are none by the deadline."""
        while not (self.why_no_stack or self._is_written()):
            if read_stat(self.pid)[0] in "XZ":
                self.why_no_stack = "it has ended"
            elif time.monotonic() > deadline:
                self.why_no_stack = "it does not answer"
            elif time.monotonic() > self._signal_at:
                self._send_signal()
            time.sleep(_POLL_S)
        if self.why_no_stack:
            return None
        stack = parse_threads(self._read()).get(self.identity["thread"])
        self.why_no_stack = "" if stack else "its main thread runs no Python"
        return stack or None

    def _send_signal(self) -> None:
        """Ask without the GIL, once, a process that has a handler; one that was not answered yet is enough."""
        self._signal_at, self._signal_limit = math.inf, time.monotonic() + _HANDLER_S
        if read_signals(self.pid, "SigCgt") & _BIT and not read_signals(self.pid, "ShdPnd") & _BIT:
            os.kill(self.pid, SIGNAL)

    def _read(self) -> str:
        return os.pread(self._file, os.fstat(self._file).st_size, self._head).decode("ascii", "replace")

    def _is_written(self) -> bool:
        """Return whether the stacks are there: up to their end, or for long enough after a signal the main thread's."""
        text = self._read()
        is_late = time.monotonic() > self._signal_limit
        return text.endswith(_END) or (is_late and self.identity["thread"] in parse_threads(text))

    def describe(self) -> dict[str, Any]:
        """Return who it is, its state, the function of the kernel in which it waits, and its CPU time."""
        known = {name: value for name, value in self.identity.items() if name not in _OWN}
        stat = read_stat(self.pid)
        cpu_s = sum(map(int, stat[11:13])) / TICKS_S
        wchan = read_file(f"/proc/{self.pid}/wchan")
        return {**known, "pid": self.pid, "state": stat[0], "wchan": wchan.strip("0"), "cpu_s": cpu_s}


def find_ranks(job: str, attempt: str) -> list[Found]:
    """Return the processes of this user on this machine that are ranks of an attempt, by rank."""
    found: list[Found] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, KeyError):
            if folder.stat().st_uid == os.geteuid():
                found += _registered(folder)
    own = (one for one in found if (one.identity["job"], one.identity["attempt"]) == (job, attempt))
    return sorted(own, key=lambda one: (one.identity["rank"], one.pid))


def _registered(folder: Path) -> Iterator[Found]:
    """Yield the process of a folder of /proc if it is a rank."""
    for link in (folder / "fd").iterdir():
        if str(link.readlink()).startswith(_LINK):
            with link.open("rb") as file:
                line = file.readline()
            identity = json.loads(line)
            own_pid = int(re.findall(r"^NSpid:.*?(\d+)$", read_file(f"{folder}/status"), re.MULTILINE)[0])
            if (identity["pid"], identity["file"]) == (own_pid, int(link.name)):  # in a container it has another number
                yield Found(int(folder.name), identity, len(line))


def parse_threads(text: str) -> dict[str, list[dict[str, Any]]]:
    """Return the frames of each thread in what faulthandler wrote, the innermost first, by the thread's number."""
    threads: dict[str, list[dict[str, Any]]] = {}
    frames: list[dict[str, Any]] = []
    for line in text.splitlines():
        if match := _THREAD.match(line):
            frames = threads[match[1]] = []
        elif match := _FRAME.match(line):
            file, number, function = match.groups()
            at = int(number) if number.isdecimal() else 0
            frames.append({"file": _unescape(file), "line": at, "function": _unescape(function)})
    return threads


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(next(filter(None, match.groups())), 16)), text)


def read_signals(pid: int, mask: str) -> int:
    """Return a mask of signals of proc_pid_status(5), as `SigCgt`; 0 of a process that is gone."""
    found = re.findall(rf"^{mask}:\s*([0-9a-f]+)$", read_file(f"/proc/{pid}/status"), re.MULTILINE)
    return int(found[0], 16) if found else 0


def _lock(file: int, deadline: float) -> None:
    """Lock a file against other looks, until it is closed. Raises BlockingIOError when that is too late."""
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


def read_stat(pid: "int | str") -> list[str]:
    """Return the fields of proc_pid_stat(5) from the state on; of a process that is gone, as of a dead one."""
    return read_file(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["X"] + ["0"] * 12


def read_file(path: str) -> str:
    """Return the text of a file; empty for one that cannot be read."""
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def main(job: str, attempt: str) -> None:
    """Print a line for each rank of an attempt on this machine."""
    found, deadline = find_ranks(job, attempt), time.monotonic() + ANSWER_LIMIT_S
    for one in found:
        one.ask(deadline)
    for one in found:
        stack = one.answer(deadline)
        sys.stdout.write(json.dumps({**one.describe(), "stack": stack, "why_no_stack": one.why_no_stack}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
