"""Receives the beats of an attempt's ranks beside the supervisor, judges them, and keeps `progress.json`."""

from __future__ import annotations
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slurmddp.runs.files import write_whole
from slurmddp.watchdog.beats import MOST_BYTES, open_beat
from slurmddp.watchdog.policy import Hang, Timeout, Track, Unclear, follow, forgive, judge_all, note_look

TICK_S: Final = 1.0
WRITE_S: Final = 5.0
PAUSE_S: Final = 5.0
"""After such a pause of this process itself, each rank has its time again."""
NO_BEAT_S: Final = 120.0
_BUFFER_BYTES: Final = 2**22

Look = Callable[[Sequence[Track]], Mapping[int, "tuple[str, float | None]"]]
"""Looks at the processes of ranks; returns by rank its state in a word, and its CPU seconds, None without one."""


def open_socket(first: int, last: int, start: int) -> socket.socket:
    """Return a socket at a free port of the range, which is tried from `start` on.

    Raises OSError when all ports are taken.
    """
    both = socket.has_dualstack_ipv6()
    opened = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_DGRAM)
    if both:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    number = last - first + 1
    for place in range(number):
        try:
            opened.bind(("", first + (start + place) % number))
        except OSError:
            if place == number - 1:
                raise
        else:
            break
    return opened


class Receiver:
    """The beats of one attempt, from `start` to `stop`."""

    def __init__(
        self,
        *,
        opened: socket.socket,
        secret: str,
        timeout: Timeout,
        progress: Path,
        look: Look,
        report: Callable[[str, Hang, Sequence[Track], float], None],
        say: Callable[[str], None],
    ) -> None:
        """Take a socket and the file `progress`; `report` gets a hang with its step, its ranks and its seconds."""
        self._socket, self._secret, self._timeout, self._progress = opened, secret, timeout, progress
        self._look, self._report, self._say = look, report, say
        self._tracks: dict[tuple[str, int], Track] = {}
        self._reported: dict[str, Hang] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
        self._began = time.monotonic()
        self._is_said = False

    def start(self) -> None:
        """Receive from now on."""
        self._socket.settimeout(TICK_S)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and write what was known last."""
        self._is_over.set()
        with suppress(OSError):  # wakes the thread
            here = "::1" if self._socket.family == socket.AF_INET6 else "127.0.0.1"
            self._socket.sendto(b"", (here, self._socket.getsockname()[1]))
        self._thread.join()
        self._socket.close()
        self._write()

    def _run(self) -> None:
        ticked_at = written_at = time.monotonic()
        while not self._is_over.is_set():
            self._receive()
            now = time.monotonic()
            if now - ticked_at < TICK_S:
                continue
            if now - ticked_at > PAUSE_S:
                self._tracks = {key: forgive(track, now) for key, track in self._tracks.items()}
            self._judge(now)
            ticked_at = time.monotonic()  # what a look has taken is no pause
            if ticked_at - written_at >= WRITE_S:
                written_at = ticked_at
                self._write()

    def _receive(self) -> None:
        with suppress(OSError):  # of a time-out too
            datagram = self._socket.recv(MOST_BYTES)
            if beat := open_beat(datagram, self._secret):
                key = beat.step, beat.rank
                self._tracks[key] = follow(self._tracks.get(key), beat, time.monotonic())

    def _judge(self, now: float) -> None:
        if not self._tracks:
            self._say_unheard(now)
            return
        found = judge_all(self._tracks, self._timeout, now)
        unclear = {step: verdict for step, verdict in found.items() if isinstance(verdict, Unclear)}
        for step, verdict in unclear.items():
            seen = self._look(verdict.silent)
            for track in verdict.silent:
                key = step, track.beat.rank
                self._tracks[key] = note_look(self._tracks[key], *seen[track.beat.rank], time.monotonic())
        if unclear:
            found = judge_all(self._tracks, self._timeout, now)
        hangs = {step: verdict for step, verdict in found.items() if isinstance(verdict, Hang)}
        for step in [step for step in self._reported if step not in hangs]:
            del self._reported[step]
            self._say("the training makes progress again, or its ranks have ended")
        for step, hang in hangs.items():
            before = self._reported.get(step)
            if before is None or before.is_certain < hang.is_certain:
                self._reported[step] = hang
                ranks = [track for key, track in self._tracks.items() if key[0] == step]
                self._report(step, hang, ranks, now - hang.since)

    def _say_unheard(self, now: float) -> None:
        if not self._is_said and now - self._began > NO_BEAT_S and any(self._progress.parent.glob("*.begin")):
            self._is_said = True
            self._say("no rank's reports arrive here (UDP): a hang of this training will not be noticed")

    def _write(self) -> None:
        """Write the file; a full disk, or one that is gone, is not the training's concern."""
        if not self._tracks:
            return
        now, clock = time.time(), time.monotonic()
        first = next(iter(self._reported.values()), None)
        stall = {"since": now - (clock - first.since), "text": first.text} if first else None
        content = {"time": now, "stall": stall, "ranks": [*map(_row, sorted(self._tracks.items()))]}
        with suppress(OSError):
            write_whole(self._progress, json.dumps(content).encode("ascii"))


def _row(item: tuple[tuple[str, int], Track]) -> dict[str, Any]:
    fields = ("rank", "host", "pid", "step", "steps", "batches", "place", "wait", "has_ended")
    beat = item[1].beat
    ages = {"heard_s": time.monotonic() - item[1].at, "active_s": time.monotonic() - item[1].active_at}
    return {name: getattr(beat, name) for name in fields} | {name: round(age, 1) for name, age in ages.items()}
