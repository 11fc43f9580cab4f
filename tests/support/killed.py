"""Runs slurmddp and kills it, as kill -9 does, just before its n-th effect.

    python killed.py N LOG ROOT WORDS...

An effect is a change below the folder ROOT, the start of a program, or that a program has been started, or has ended.
LOG gets a line for each effect; N = 0 kills nothing.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_CHANGES = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.symlink", "os.chmod", "os.utime")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killer:
    """Counts the effects of this process and ends it at one of them."""

    def __init__(self, number: int, log: str, root: str) -> None:
        self._number, self._root, self._seen, self._write = number, root, 0, os.write
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def count(self, effect: str) -> None:
        self._seen += 1
        self._write(self._log, f"{effect}\n".encode())
        if self._seen == self._number:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, values: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self.count(f"{Path(values[1][0]).name} is started")
        elif (event == "open" and values[2] & _WRITES) or event in _CHANGES:
            path = os.fsdecode(values[0]) if isinstance(values[0], str | bytes | os.PathLike) else ""
            if path.startswith(self._root) or (path and not path.startswith("/") and event != "open"):
                self.count(f"{event} {path.removeprefix(self._root)}")

    def follow_programs(self) -> None:
        """Count also that a program runs, and that its answer was read."""
        start, communicate, write = subprocess.Popen._execute_child, subprocess.Popen.communicate, os.write

        def started(process: Any, words: Any, *rest: Any) -> None:
            start(process, words, *rest)
            self.count(f"{words[0]} runs")

        def ended(process: Any, *given: Any, **named: Any) -> Any:
            answer = communicate(process, *given, **named)
            self.count(f"{process.args[0]} has ended")
            return answer

        def written(descriptor: int, content: Any) -> int:
            length = write(descriptor, content)
            self.count("something is written")
            return length

        subprocess.Popen._execute_child, subprocess.Popen.communicate, os.write = started, ended, written


def main() -> None:
    number, log, root, *sys.argv[1:] = sys.argv[1:]
    killer = Killer(int(number), log, root)
    killer.follow_programs()
    from slurmddp.cli import main as slurmddp  # noqa: PLC0415 - what it does while it is imported counts, too

    sys.addaudithook(killer.audit)
    sys.argv[0] = "slurmddp"
    slurmddp()


if __name__ == "__main__":
    main()
