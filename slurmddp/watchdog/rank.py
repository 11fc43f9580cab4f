"""What a rank reports of itself: a thread looks at the main thread once a second, and sends a beat every few seconds.

The beats go to the supervisor as datagrams: it is there before the ranks, and hangs with none of them. The thread ends
with the process; processes that the rank forks have none.
"""

from __future__ import annotations
import dis
import json
import os
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from slurmddp.watchdog.beats import seal
from slurmddp.watchdog.policy import Beat
from slurmddp.watchdog.usage import Usage

SAMPLE_S: Final = 1.0
EVERY_S: Final = 2.0
RANKS_A_SECOND: Final = 32
"""Beats that the supervisor gets in a second, at most."""
_FRAMES: Final = 200
_FEW: Final = 3
_MOST_TEXT: Final = 150
_LIBRARY: Final = sysconfig.get_paths()["stdlib"]
_OURS: Final = str(Path(__file__).absolute().parents[1])
_COLLECTIVES: Final = tuple(
    f"torch/distributed/{name}.py" for name in ("distributed_c10d", "rendezvous", "_functional_collectives")
)


class Counts:
    """The steps and batches of this process."""

    def __init__(self) -> None:
        self._by_optimizers = self._by_loop = self.batches = 0
        self.longest_s = 0.0
        """The longest time between two of them, from the first step on: before, programs compile."""
        self._at = 0.0

    @property
    def steps(self) -> int:
        """The steps of optimizers, or of slurmddp's loop."""
        return max(self._by_optimizers, self._by_loop)

    def step(self, *, is_loop: bool = False) -> None:
        """Count a step of an optimizer, or of slurmddp's loop."""
        self._note()
        self._by_loop += is_loop
        self._by_optimizers += not is_loop

    def batch(self) -> None:
        """Count a batch from a DataLoader."""
        self._note()
        self.batches += 1

    def _note(self) -> None:
        now = time.monotonic()
        if self.steps:
            self.longest_s = max(self.longest_s, now - self._at)
        self._at = now


COUNTS: Final = Counts()
"""The counts of this process."""


class Sampler:
    """Looks at the stack of a thread, time and again."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._lines: dict[int, float] = {}
        """When each stack was last seen, by its lines."""
        self._began = time.monotonic()
        self._call: object = None
        self._called: str | None = None
        self._since = self._began
        self._is_ours: dict[str, bool] = {}
        self.place = self.wait = ""

    def sample(self) -> None:
        """Look at the stack now."""
        now = time.monotonic()
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - as its documentation says, for debuggers
        if frame is None:
            return
        stack = [(one.f_code, one.f_lasti) for one in _walk(frame)]
        call = stack, frame.f_code.co_code[frame.f_lasti] if frame.f_lasti >= 0 else 0
        is_same = call == self._call and "JUMP" not in dis.opname[call[1]]
        self._since = self._since if is_same else now
        lines = hash((frame.f_code, frame.f_lineno, *stack[1:]))
        if lines not in self._lines and len(self._lines) > _FRAMES:
            self._lines = dict(sorted(self._lines.items(), key=lambda item: item[1])[-_FEW - 1 :])
        self._lines[lines] = now
        if call != self._call:
            self._call, self._called, self.place = call, None, self._describe(frame)
        self.wait = self._find_wait(frame, is_same=is_same)

    @property
    def same_s(self) -> float:
        """For how long the thread has been in one call."""
        return time.monotonic() - self._since

    @property
    def few_s(self) -> float:
        """For how long the thread was seen in no more than three lines."""
        seen = sorted(self._lines.values())
        return time.monotonic() - (seen[-_FEW - 1] if len(seen) > _FEW else self._began)

    def _describe(self, frame: FrameType) -> str:
        for one in _walk(frame):
            code = one.f_code
            if code.co_filename not in self._is_ours:
                self._is_ours[code.co_filename] = _is_of_program(code.co_filename)
            if self._is_ours[code.co_filename]:
                function = "" if code.co_name == "<module>" else f"{code.co_name}() at "
                return f"{function}{code.co_filename.rpartition('/')[2]}:{one.f_lineno}"[:_MOST_TEXT]
        return ""

    def _find_wait(self, frame: FrameType, *, is_same: bool) -> str:
        """Return the collective in which the thread waits; empty elsewhere."""
        if "torch.distributed" not in sys.modules:
            return ""
        for one in _walk(frame, most=4):  # decorators of torch are around it
            if one.f_code.co_filename.endswith(_COLLECTIVES):
                return one.f_code.co_name.strip("_")
        if not is_same:
            return ""
        if _uses_cuda() and _is_pending_on_gpu():
            return "a collective on the GPU"
        if frame.f_code.co_name == "_engine_run_backward":
            is_distributed = sys.modules["torch.distributed"].is_initialized()
            return "backward" if is_distributed and not _uses_cuda() else ""
        if self._called is None:
            self._called = _find_called(frame.f_code, frame.f_lasti)
        return "wait" if self._called == "wait" else ""


def _walk(frame: FrameType | None, most: int = _FRAMES) -> Iterator[FrameType]:
    """Yield the frames of a stack, the innermost first."""
    while frame and most:
        yield frame
        frame, most = frame.f_back, most - 1


def _is_of_program(path: str) -> bool:
    """Return whether a file is neither torch's nor slurmddp's nor of the standard library."""
    packages = ("site-packages", "dist-packages")
    in_library = path.startswith((_LIBRARY, "<frozen")) and not any(name in path for name in packages)
    return not (in_library or path.startswith(_OURS) or "-packages/torch/" in path)


def _is_pending_on_gpu() -> bool:
    """Return whether NCCL has not finished a collective of this process, by torch's flight recorder.

    A program does not wait where it calls the collective, but where it next needs something of the GPU.
    """
    take = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_nccl_trace_json", None)  # from torch 2.6 on
    groups = json.loads(take(includeCollectives=False, onlyActive=True)).get("pg_status", {}) if take else {}
    names = ("last_enqueued_collective", "last_completed_collective")
    numbers = [[int(group[name]) for name in names] for group in groups.values()]
    return any(enqueued > completed for enqueued, completed in numbers)


def _find_called(code: CodeType, place: int) -> str:
    """Return the name of the method that a frame calls in C: `work.wait()` has no frame of its own."""
    name = ""
    for instruction in dis.get_instructions(code):
        if instruction.offset > place:
            break
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            name = str(instruction.argval)
    return name


class Heart:
    """Sends the beats of this process. Its thread starts at once."""

    def __init__(self, address: str, secret: str, *, rank: int, world_size: int, host: str) -> None:
        """Take the supervisor's `host:port`."""
        self._address, self._secret = address, secret
        step, pid = os.environ.get("SLURM_STEP_ID", ""), os.getpid()
        every_s = max(EVERY_S, world_size / RANKS_A_SECOND)
        self._beat = Beat(rank, world_size, step, host, pid, time.time(), 0.0, every_s)
        self._began = time.monotonic()
        self._socket: socket.socket | None = None
        self._sampler, self._usage = Sampler(threading.main_thread().ident or 0), Usage()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="beats", daemon=True).start()

    def end(self) -> None:
        """Say that the program has ended on this rank."""
        with suppress(OSError):
            self._send(has_ended=True)

    def _run(self) -> None:
        pid = os.getpid()
        next_at = 0.0
        while os.getpid() == pid and not self._beat.has_ended:
            with suppress(Exception):  # nothing that fails here may end or disturb a training
                self._sampler.sample()
                if time.monotonic() >= next_at:
                    next_at = time.monotonic() + self._beat.every_s - SAMPLE_S / 2
                    self._send()
            time.sleep(SAMPLE_S)

    def _send(self, **more: Any) -> None:
        with self._lock:
            if self._beat.has_ended:
                return
            sampler, used = self._sampler, self._usage.measure()
            self._beat = self._beat._replace(
                age_s=time.monotonic() - self._began,
                steps=COUNTS.steps,
                batches=COUNTS.batches,
                longest_s=COUNTS.longest_s,
                place=sampler.place,
                wait=sampler.wait,
                same_s=sampler.same_s,
                few_s=sampler.few_s,
                cpu_s=used.cpu_s,
                children_cpu_s=used.children_cpu_s,
                moved_bytes=used.moved_bytes,
                is_blocked=sampler.same_s > EVERY_S and self._usage.is_blocked(),
                spins_to_wait=_uses_cuda(),
                **more,
            )
            self._connect().send(seal(self._beat, self._secret))

    def _connect(self) -> socket.socket:
        if self._socket is None:
            host, _, port = self._address.rpartition(":")
            family, kind, protocol, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
            made = socket.socket(family, kind, protocol)
            made.settimeout(0)
            made.connect(target)
            self._socket = made
        return self._socket


def _uses_cuda() -> bool:
    is_initialized: Callable[[], bool] | None = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
    return is_initialized is not None and is_initialized()
