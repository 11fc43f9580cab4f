"""Watches the ranks of one attempt for the supervisor: says when they hang, and ends them if the job asks for it."""

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Any, Final

from slurmddp import variables
from slurmddp.attach import run_words
from slurmddp.batch.attempt import Job
from slurmddp.batch.controller import Controller
from slurmddp.batch.policy import Result
from slurmddp.errors import ClusterError
from slurmddp.exit_codes import RETRYABLE
from slurmddp.runs import events
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.files import write_whole
from slurmddp.supervisor_options import Options
from slurmddp.text import format_duration
from slurmddp.watchdog.beats import MOST_BYTES, Beat, open_beat, open_socket
from slurmddp.watchdog.look import read_file
from slurmddp.watchdog.policy import Hang, Track, follow, judge, note_look, timeout_s
from slurmddp.watchdog.usage import descendants

TICK_S: Final = 1.0
UNHEARD_S: Final = 60.0
"""A launch in which no Python has become a rank, or whose reports do not arrive, is named after this time."""
_NO_RANK: Final = (
    f"no Python has become a rank within {UNHEARD_S:.0f} s of the start: ranks that run already hear no stop signal by "
    "slurmddp, and are supervised by the launch's status alone; docs/own-script.md says what does not attach"
)
_NO_BEAT: Final = "no rank's reports arrive here (UDP): a hang of this training will not be noticed"
USAGE_S: Final = 60.0
"""What the ranks use is recorded after this time, then ten times more rarely, and at the end."""
END_S: Final = 10.0
"""For the ranks to end after SIGKILL, until they get it again, and the launcher gets it, too."""
SAVE_S: Final = 30.0
"""For the ranks that do not hang to save what they hold."""
LOOK_S: Final = 10.0
"""For a node to say where its ranks stand; after this time no further one is asked, and a silent one once more."""
UNREACHABLE: Final = "unreachable"
"""The state of a rank whose node has not answered in time."""


class Watch:
    """The watch of one attempt, from `start` to `stop`."""

    def __init__(
        self,
        options: Options,
        job: Job,
        slurm: Controller,
        *,
        say: Callable[[str], None],
        record: Callable[[events.SupervisorEvent], None],
    ) -> None:
        """Take a job; `say` writes to the batch log."""
        self._options, self._job, self._slurm = options, job, slurm
        self._say, self._record = say, record
        self._tracks: dict[str, dict[int, Track]] = {}
        """By the step, and by the rank."""
        self._hangs: dict[str, Hang] = {}
        """Those that go on, by the step."""
        self._ended = ""
        """Why the ranks were ended; empty while they were not."""
        self.lost: list[str] = []
        """Nodes for which the ranks were ended: they give no sign, and spares can take their place."""
        self._asked_at = 0.0
        """When a silent node was last asked."""
        self._away_s = 0.0
        """For how long nothing was received, because nodes were asked: no time of the ranks."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._socket: socket | None = None

    def start(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Watch the ranks of the attempt with this environment; return what they must know besides."""
        self._environ, self._folder = environ, Path(environ[variables.ATTEMPT_DIR])
        try:
            self._socket = open_socket(*self._options.ports, start=self._job.number)
        except OSError:  # without a port, the ranks are not watched
            return {}
        self._thread.start()
        is_head = self._job.host == self._job.head
        address = environ[variables.HEAD_ADDRESS] if is_head else self._slurm.address(self._job.host)
        return {variables.BEATS: f"{address or self._job.host}:{self._socket.getsockname()[1]}"}

    def stop(self, result: Result) -> Result:
        """End the watch; return the result of the ranks, which is another one where the watch has ended them."""
        self._is_over.set()
        if self._socket:
            with suppress(OSError):  # wakes the thread
                self._socket.sendto(b"", self._socket.getsockname()[:2])
            self._thread.join()
            self._socket.close()
            self._record_usage()
        record = decisive_record(read_records(self._folder)) if self._ended else None
        is_own = record and record.status != RETRYABLE
        return Result(RETRYABLE, self._ended) if self._ended and not is_own else result

    def _run(self) -> None:
        say_unheard_at, record_usage_at = self._now() + UNHEARD_S, self._now() + USAGE_S
        while not self._is_over.is_set():
            self._receive(self._now() + TICK_S)
            now = self._now()
            if now > say_unheard_at and not self._tracks:
                has_rank = any(self._folder.glob("*.begin"))
                if has_rank or self._options.own_launch:
                    self._say(_NO_BEAT if has_rank else _NO_RANK)
                say_unheard_at = math.inf if has_rank or self._options.own_launch else now + UNHEARD_S
            if now > record_usage_at:
                record_usage_at = now + 10 * USAGE_S
                self._record_usage()
            for step, tracks in self._tracks.items():
                self._judge(step, tracks, now)
                if self._options.spares and now > self._asked_at + LOOK_S and not self._ended:
                    self._end_without(self._find_silent(tracks, now), step, tracks)
            self._away_s += self._now() - now

    def _now(self) -> float:
        """Return the time of a clock that stands while nothing is received."""
        return time.monotonic() - self._away_s

    def _receive(self, until: float) -> None:
        while self._socket and not self._is_over.is_set() and (left_s := until - self._now()) > 0:
            self._socket.settimeout(left_s)
            with suppress(OSError):  # of a time-out too
                if beat := open_beat(self._socket.recv(MOST_BYTES), self._environ[variables.SECRET]):
                    tracks = self._tracks.setdefault(beat.step, {})
                    tracks[beat.rank] = follow(tracks.get(beat.rank), beat, self._now())

    def _judge(self, step: str, tracks: dict[int, Track], now: float) -> None:
        """Judge the ranks of one step, whose silent ones are looked at first, and say what is new."""
        limit_s = timeout_s(self._options.hang_timeout, tracks.values())
        hang, rows = judge(tracks.values(), limit_s, now), {}
        if hang and hang.unseen:
            rows = self._look([track.beat for track in hang.unseen])
            tracks.update({rank: note_look(tracks[rank], row, now) for rank, row in rows.items()})
            hang = judge(tracks.values(), limit_s, now)
        before = self._hangs.pop(step, None)
        if hang:
            self._hangs[step] = hang
            if before is None or before.is_certain < hang.is_certain:
                self._report(hang, now - hang.since)
                beats = [*hang.odd, *(track.beat for track in tracks.values())]
                rows |= self._look([beat for beat in beats if beat.rank not in rows])
                with suppress(OSError):  # a full disk is not the training's concern
                    path = self._job.run.stacks(self._job.job_id, self._folder.name)
                    write_whole(path, json.dumps([*rows.values()]).encode("ascii"))
                if self._options.hang_timeout and hang.is_certain:
                    self._ended = f"hung for {format_duration(now - hang.since)}: {hang.text}"
                    here = [rank for rank, track in tracks.items() if track.beat.host == self._job.host and not step]
                    pids = [rows[rank]["pid"] for rank in here if "pid" in rows[rank]]
                    self._let_save(step, pids, {*tracks} - {beat.rank for beat in hang.odd})
                    is_cut = any(track.found == UNREACHABLE for track in tracks.values())
                    self._end(step, self._find_launch() if is_cut else pids)
        elif before:
            self._say("the training makes progress again, or its ranks have ended")
            self._record(events.HangEnd())

    def _find_silent(self, tracks: Mapping[int, Track], now: float) -> list[str]:
        """Return the nodes of which no rank has ended, or sent anything for a while, unless that is true of all."""
        ended = {record.rank for record in read_records(self._folder)}
        heard = {track.beat.host for rank, track in tracks.items() if rank in ended or not track.is_silent(now)}
        silent = dict.fromkeys(track.beat.host for track in tracks.values() if track.beat.host not in heard)
        return [*silent] if heard else []

    def _end_without(self, silent: Sequence[str], step: str, tracks: Mapping[int, Track]) -> None:
        """End the ranks before Slurm takes silent nodes for lost: all others have ended, or the nodes do not answer."""
        if not silent:
            return
        self._asked_at = self._now()
        others = {rank for rank, track in tracks.items() if track.beat.host not in silent}
        is_alone = others <= {record.rank for record in read_records(self._folder)}
        asked = () if is_alone else {*silent, self._job.host}  # where this node does not answer either, Slurm does not
        silence = {host: why for host, _, why in self._ask_nodes([*asked])}
        self.lost = [host for host in silent if is_alone or (silence[host] and not all(silence.values()))]
        if self.lost:
            silent_s = self._now() - max(track.at for track in tracks.values() if track.beat.host in self.lost)
            self._ended = f"no sign of {', '.join(self.lost)} for {silent_s:.0f} s"
            self._say(f"WARNING: {self._ended}; the ranks are ended, and start again on other nodes")
            self._let_save(step, [], others)
            self._end(step, self._find_launch())

    def _report(self, hang: Hang, stalled_s: float) -> None:
        self._say(f"WARNING: the training makes no progress for {format_duration(stalled_s)}: {hang.text}")
        event = events.Hang(
            reason=hang.text,
            stalled_s=round(stalled_s, 1),
            hung_ranks=tuple(beat.rank for beat in hang.odd),
            hung_hosts=tuple(dict.fromkeys(beat.host for beat in hang.odd)),
            place=hang.odd[0].place if hang.odd else "",
            ends=bool(self._options.hang_timeout) and hang.is_certain,
        )
        self._record(event)

    def _record_usage(self) -> None:
        tracks = [track for ranks in self._tracks.values() for track in ranks.values()]
        heard_at = max((track.at for track in tracks), default=0.0)
        beats = [track.beat for track in tracks if not track.is_silent(heard_at)]  # no more those of an earlier step
        name = "{0.rank}" if len({beat.step for beat in beats}) == 1 else "{0.rank} of step {0.step}"
        if beats:
            self._record(events.Usage(ranks={name.format(beat): (beat.host, *beat.use) for beat in beats}))

    def _look(self, beats: Sequence[Beat]) -> dict[int, dict[str, Any]]:
        """Return by rank what `look` shows, and at least its state, where its node does not answer in time."""
        ranks = {beat.rank: {"rank": beat.rank, "host": beat.host, "cpu_s": 0.0} for beat in beats}
        found = {rank: {**row, "state": UNREACHABLE} for rank, row in ranks.items()}
        hosts, ends_at = [*dict.fromkeys(beat.host for beat in beats)], time.monotonic() + LOOK_S
        for host, rows, silence in self._ask_nodes(hosts):
            if not silence:
                found |= {rank: {**row, "state": "gone"} for rank, row in ranks.items() if row["host"] == host}
                found |= {row["rank"]: row for row in rows if row["rank"] in ranks}
            if time.monotonic() > ends_at:
                break
        return found

    def _ask_nodes(self, hosts: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
        """Yield for each node its name, its ranks as `look` shows them, and why it has not answered in time."""
        from slurmddp.watchdog.nodes import look_at_nodes  # noqa: PLC0415 - threads, which few jobs need

        command = [sys.executable, *run_words(sys.executable), "slurmddp.watchdog.look"]
        words = [*command, self._job.job_id, self._folder.name]
        return look_at_nodes(self._job.number, hosts, words, os.environ, limit_s=LOOK_S)

    def _let_save(self, step: str, pids: Sequence[int], able: set[int]) -> None:
        """Let the ranks that do not hang save what they hold, and leave."""
        with suppress(OSError):
            self._job.run.hang(self._job.job_id, self._folder.name).touch()
        self._signal(step, pids, signal.SIGTERM)
        ends_at = time.monotonic() + SAVE_S
        while time.monotonic() < ends_at and able - {record.rank for record in read_records(self._folder)}:
            if self._is_over.wait(0.2):
                return

    def _signal(self, step: str, pids: Sequence[int], number: signal.Signals) -> None:
        """Send a signal to the ranks, by their step or on this node by their processes."""
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, number)
        if step:  # a node that does not answer keeps scancel waiting
            threading.Thread(target=self._signal_step, args=(step, number.name[3:]), daemon=True).start()

    def _signal_step(self, step: str, name: str) -> None:
        try:
            self._slurm.send_signal(f"{self._job.number}.{step}", name)
        except ClusterError as error:
            if not self.lost:
                self._say(f"signal {name} has not reached all ranks: {error}")

    def _end(self, step: str, pids: Sequence[int]) -> None:
        """Kill the ranks until the launch has ended."""
        while not self._is_over.is_set():
            self._signal(step, pids, signal.SIGKILL)
            if self._is_over.wait(END_S):
                return
            self._say(f"the ranks have not ended {END_S:.0f} s after SIGKILL; trying again")
            pids = self._find_launch()

    def _find_launch(self) -> list[int]:
        """Return the processes of this attempt here; of a script of somebody's own, those of srun alone."""
        if not self._options.own_launch:
            return [*map(int, descendants("self"))]
        started = f"{variables.ATTEMPT_DIR}={self._folder}\0"
        steps = (pid for pid in descendants(str(os.getppid())) if read_file(f"/proc/{pid}/comm") == "srun\n")
        return [int(pid) for pid in steps if started in read_file(f"/proc/{pid}/environ")]
