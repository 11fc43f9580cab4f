"""Watches the ranks of one attempt for the supervisor: warns when they hang, and ends them if the job asks for it."""

from __future__ import annotations
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Final

from slurmddp import variables
from slurmddp.batch.attempt import Job
from slurmddp.batch.controller import Controller
from slurmddp.batch.policy import Result
from slurmddp.errors import ClusterError
from slurmddp.exit_codes import RETRYABLE
from slurmddp.runs.events import Hang as HangEvent
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.supervisor_options import Options
from slurmddp.text import format_duration
from slurmddp.watchdog.policy import Hang, Timeout, Track
from slurmddp.watchdog.receiver import Receiver, open_socket
from slurmddp.watchdog.usage import TICKS_S, descendants

END_S: Final = 10.0
"""For the ranks to end after SIGKILL, until they get it again, and the launcher gets it, too."""
LOOK_S: Final = 20.0
"""After this time no further node is asked: one that does not answer takes ten seconds."""
_STATES: Final = {"T": "stopped", "t": "stopped by a debugger", "D": "blocked in the kernel"}


class Watch:
    """The watch of one attempt, from `start` to `stop`."""

    def __init__(
        self,
        options: Options,
        job: Job,
        slurm: Controller,
        *,
        say: Callable[[str], None],
        record: Callable[[HangEvent], None],
    ) -> None:
        """Open a port for the ranks' reports."""
        self._options, self._job, self._slurm = options, job, slurm
        self._say, self._record = say, record
        self._timeout = Timeout.parse(options.hang_timeout)
        self._is_over = threading.Event()
        self._receiver: Receiver | None = None
        self._ended = ""
        self._socket: socket | None = None
        with suppress(OSError):  # without a port, the ranks are not watched
            self._socket = open_socket(*options.ports, start=job.number)

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what the ranks must know besides their environment."""
        if self._socket is None:
            return {}
        is_head = self._job.host == self._job.head
        address = environ[variables.HEAD_ADDRESS] if is_head else self._slurm.address(self._job.host)
        address = address or self._job.host
        return {variables.BEATS: f"{address}:{self._socket.getsockname()[1]}"}

    def start(self, folder: Path, environ: Mapping[str, str]) -> None:
        """Watch the ranks of the attempt with this folder and environment."""
        if self._socket:
            self._receiver = Receiver(
                opened=self._socket,
                secret=environ[variables.SECRET],
                timeout=self._timeout,
                progress=folder / "progress.json",
                look=self._look,
                report=self._report,
                say=self._say,
            )
            self._receiver.start()

    def stop(self, folder: Path, result: Result) -> Result:
        """End the watch; return the result of the ranks, which is another one where the watch has ended them."""
        self._is_over.set()
        if self._receiver:
            self._receiver.stop()
        record = decisive_record(read_records(folder)) if self._ended else None
        is_own = record and record.status != RETRYABLE
        return Result(RETRYABLE, self._ended) if self._ended and not is_own else result

    def _look(self, tracks: Sequence[Track]) -> dict[int, tuple[str, float | None]]:
        """Look at processes on their nodes, while there is time."""
        found: dict[int, tuple[str, float | None]] = {track.beat.rank: ("unreachable", None) for track in tracks}
        ends_at = time.monotonic() + LOOK_S
        for host in {track.beat.host for track in tracks}:
            here = [track.beat for track in tracks if track.beat.host == host]
            with suppress(ClusterError):
                if time.monotonic() < ends_at:
                    stats = self._slurm.processes(self._job.number, host, [beat.pid for beat in here])
                    found |= {beat.rank: _read_stat(stats.get(beat.pid, "")) for beat in here}
        return found

    def _report(self, step: str, hang: Hang, tracks: Sequence[Track], stalled_s: float) -> None:
        """Say what was found; called by the receiver's thread."""
        is_ended = self._timeout.acts and hang.is_certain
        what = "the training hangs" if hang.is_certain else "the training stands still"
        self._say(f"WARNING: {what}, no progress for {format_duration(stalled_s)}: {hang.text}")
        self._record(
            HangEvent(
                reason=hang.text,
                stalled_s=round(stalled_s, 1),
                hung_ranks=tuple(track.beat.rank for track in hang.ranks),
                hung_hosts=tuple(dict.fromkeys(track.beat.host for track in hang.ranks)),
                ends=is_ended,
            )
        )
        if is_ended:
            self._ended = f"hung for {format_duration(stalled_s)}: {hang.text}"
            self._end(step, tracks)

    def _end(self, step: str, tracks: Sequence[Track]) -> None:
        """Kill the ranks until the launch has ended."""
        while not self._is_over.is_set():
            try:
                if step:
                    self._slurm.kill_step(self._job.number, step)
                else:
                    for track in (track for track in tracks if track.beat.host == self._job.host):
                        os.kill(track.beat.pid, signal.SIGKILL)
            except (ClusterError, OSError) as error:
                self._say(f"the ranks could not be killed: {error}")
            if self._is_over.wait(END_S):
                return
            self._say(f"the ranks have not ended {END_S:.0f} s after SIGKILL; trying again")
            for pid in () if self._options.own_launch else [*descendants("self")]:
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)


def _read_stat(text: str) -> tuple[str, float | None]:
    """Return the state of a process in a word, and its CPU seconds, by its line of proc_pid_stat(5)."""
    fields = text.rpartition(")")[2].split()
    if not fields or fields[0] == "Z":
        return "gone", None
    return _STATES.get(fields[0], "silent"), (int(fields[11]) + int(fields[12])) / TICKS_S
