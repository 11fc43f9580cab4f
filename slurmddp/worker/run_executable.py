"""Runs a COMMAND that is an executable, and answers for it: its status, and notices. Starts one process."""

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from slurmddp.background import wait_until
from slurmddp.errors import PeerError, RankError
from slurmddp.runtime.launch.process import die_with_parent
from slurmddp.runtime.stopping.policy import Phase
from slurmddp.runtime.stopping.signals import CLOCK, SIGNALS
from slurmddp.runtime.stopping.stopping import HEARD_LIMIT_S, NOTICE_LIMIT_S, SETTLE_LIMIT_S, SOON_S, Stopping
from slurmddp.watchdog.look import read_signals, read_stat
from slurmddp.worker.run_script import map_to_snapshot


def run(words: list[str], stopping: Stopping) -> None:
    """Run the program to its end.

    Raises SystemExit with its status if that is not 0, PeerError when a signal killed it, RankError when it cannot be
    started.
    """
    stopping.enter(Phase.START)  # a stop request in these milliseconds is for the program, which no answer knows yet
    program = _Program(words, stopping)
    stopping.enter(Phase.EXECUTABLE, answer_executable=program.answer_stop)
    status = program.wait()
    if status < 0:
        named = next((number.name for number in signal.Signals if number == -status), f"signal {-status}")
        raise PeerError(f"{words[0]} was killed by {named}")
    if status:
        raise SystemExit(status)


class _Program:
    """The executable: a process, and a group with all that it starts."""

    def __init__(self, words: list[str], stopping: Stopping) -> None:
        self._stopping = stopping
        self._catches: bool | None = None
        try:
            self._process = _start(words)
        except (OSError, subprocess.SubprocessError) as error:
            raise RankError(f"COMMAND {words[0]!a} cannot be started: {error}") from error

    def answer_stop(self) -> None:
        """Answer a notice: a program that catches the signal goes on, another one is over.

        With proctrack/linuxproc Slurm sends its signals to every process of a step, with proctrack/cgroup to its tasks
        alone, and under torchrun to no rank at all.
        """
        pid, cause = self._process.pid, self._stopping.signals.cause
        self._catches = _catches(pid, SIGNALS if cause == CLOCK else (signal.Signals[cause],))
        if self._catches:
            self._stopping.signals.handled_by_program = cause
        if cause != CLOCK and not (self._stopping.rank.under_srun and _gets_signals(Path("/proc/self/cgroup"))):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.Signals[cause])
        if self._catches is False:
            self._stopping.enter(Phase.SCRIPT)

    def wait(self) -> int:
        """Return the status, below 0 for a signal; not for a program that a notice has ended, with this process."""
        status, signals = self._process.wait(), self._stopping.signals
        if status:
            by_signal = -status in SIGNALS or status - 128 in SIGNALS  # itself, or what a shell waited for
            seen = signals.signal_seen.wait(NOTICE_LIMIT_S if by_signal else HEARD_LIMIT_S)
            if seen and (by_signal if self._catches is None else not self._catches):
                self._stopping.enter(Phase.SCRIPT)
                time.sleep(SETTLE_LIMIT_S)
        elif self._catches is None and wait_until(lambda: signals.cause, SOON_S) and signals.cause != CLOCK:
            signals.handled_by_program = signals.cause  # it ended before its handlers could be looked at
        return status


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def be_program() -> None:
        os.setpgid(0, 0)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent)

    path = map_to_snapshot(words[0]) if "/" in words[0] else words[0]
    return subprocess.Popen([path, *words[1:]], preexec_fn=be_program)  # noqa: PLW1509, S603 - no shell line can do it; it is the user's own COMMAND


def _gets_signals(cgroups: Path) -> bool:
    """Tell whether Slurm's signals also reach what its tasks start: not where a step has a cgroup of its own.

    Measured with 22.05. On cgroup v1 the hierarchy `freezer` belongs to proctrack/cgroup; v2 has one hierarchy, 0.
    """
    return not re.search(r"^(\d+:freezer|0:):.*/step_", cgroups.read_text(), re.MULTILINE)


def _catches(pid: int, numbers: tuple[signal.Signals, ...]) -> "bool | None":
    """Tell whether a process has a handler for one of the signals (proc_pid_status(5), SigCgt); None: it is gone."""
    caught = read_signals(pid, "SigCgt")
    if read_stat(pid)[0] in "ZX":  # it may have ended before the mask was read
        return None
    return any(caught >> (number - 1) & 1 for number in numbers)
