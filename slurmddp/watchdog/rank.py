"""What a rank reports of itself: a thread looks at the main thread once a second, and sends a beat every few seconds.

The beats go to the supervisor as datagrams: it is there before the ranks, and hangs with none of them. The thread ends
with the process; processes that the rank forks have none.
"""

import dis
import json
import socket
import sys
import threading
import time
from contextlib import suppress
from types import CodeType, FrameType
from typing import Final

from slurmddp.watchdog.beats import Beat, seal
from slurmddp.watchdog.gpu import OwnGpu
from slurmddp.watchdog.policy import judge_work
from slurmddp.watchdog.stack_groups import find_program, format_place
from slurmddp.watchdog.usage import measure

SAMPLE_S: Final = 1.0
_FRAMES: Final = 200
_FEW: Final = 3
_DECORATORS: Final = 4
"""So many frames of torch's decorators may be around a collective, at most."""
_MOST_TEXT: Final = 150
_COLLECTIVES: Final = tuple(
    f"torch/distributed/{name}.py" for name in ("distributed_c10d", "rendezvous", "_functional_collectives")
)
_IN_C: Final = {"_engine_run_backward": "backward", "_distributed_broadcast_coalesced": "broadcast"}


class Steps:
    """The steps of the optimizers of this process."""

    done = 0

    def count(self, *_: object) -> None:
        """Count a step: a hook of torch."""
        self.done += 1


class Sampler:
    """Looks at the stack of a thread, time and again."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._stack: list[tuple[CodeType, int]] = []
        self._since = time.monotonic()
        self._seen = {0: self._since}
        """When the lines were last seen in which the thread was, the newest last."""
        self.place = self.wait = ""
        self.same_s = self.few_s = 0.0
        """For how long the thread has been in one call, and was seen in no more than three lines."""

    def sample(self) -> None:
        """Look at the stack now."""
        now, frame = time.monotonic(), sys._current_frames().get(self._thread)  # noqa: SLF001 - documented, for debuggers
        frames: list[FrameType] = []
        while frame and len(frames) < _FRAMES:
            frames.append(frame)
            frame = frame.f_back
        if not frames:
            return
        first, stack = frames[0], [(one.f_code, one.f_lasti) for one in frames]
        at = frames[find_program([one.f_code.co_filename for one in frames])]
        self.place = format_place(at.f_code.co_filename, at.f_lineno, at.f_code.co_name)[:_MOST_TEXT]
        is_same = stack == self._stack and "JUMP" not in dis.opname[first.f_code.co_code[first.f_lasti]]
        self._stack, self._since = stack, self._since if is_same else now
        lines = hash((first.f_code, first.f_lineno, *stack[1:]))
        self._seen.pop(lines, None)
        self._seen[lines] = now
        if len(self._seen) > _FEW + 1:
            del self._seen[next(iter(self._seen))]
        self.same_s, self.few_s = now - self._since, now - next(iter(self._seen.values()))
        self.wait = _find_wait(frames, is_same=is_same) if "torch.distributed" in sys.modules else ""


def _find_wait(frames: list[FrameType], *, is_same: bool) -> str:
    """Return the collective in which a thread waits, the innermost frame first; empty elsewhere."""
    for one in frames[:_DECORATORS]:
        if one.f_code.co_filename.endswith(_COLLECTIVES):
            return one.f_code.co_name.strip("_")
    if not is_same:
        return ""
    if uses_cuda() and _is_pending_on_gpu():
        return "a collective on the GPU"
    if name := _IN_C.get(frames[0].f_code.co_name):
        return name if not uses_cuda() and sys.modules["torch.distributed"].is_initialized() else ""
    before = (one for one in dis.get_instructions(frames[0].f_code) if one.offset <= frames[0].f_lasti)
    called = [one.argval for one in before if one.opname in ("LOAD_METHOD", "LOAD_ATTR")]
    return "wait" if called[-1:] == ["wait"] else ""  # `work.wait()` is C, and has no frame of its own


def _is_pending_on_gpu() -> bool:
    """Return whether NCCL has not finished a collective of this process, by torch's flight recorder.

    A program does not wait where it calls the collective, but where it next needs something of the GPU.
    """
    take = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_nccl_trace_json", None)  # from torch 2.6 on
    groups = json.loads(take(includeCollectives=False, onlyActive=True)).get("pg_status", {}) if take else {}
    return any(int(one["last_enqueued_collective"]) > int(one["last_completed_collective"]) for one in groups.values())


def uses_cuda() -> bool:
    """Return whether the program has begun to use CUDA."""
    return bool(getattr(sys.modules.get("torch.cuda"), "is_initialized", bool)())


def send_beats(beat: Beat, steps: Steps, address: str, secret: str) -> None:
    """Report to the supervisor's `host:port` for ever, in a thread of its own; `beat` says which rank this is."""
    sampler, before, at = Sampler(threading.main_thread().ident or 0), measure(), time.monotonic() - beat.every_s
    sending = gpu = None
    while True:
        with suppress(Exception):  # nothing that fails here may end or disturb a training
            sampler.sample()
            took_s = time.monotonic() - at
            if took_s >= beat.every_s - SAMPLE_S / 2:
                if sending is None:
                    host, _, port = address.rpartition(":")
                    family, kind, _, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
                    sending = socket.socket(family, kind)
                used, wait = measure(), sampler.wait
                works, may_work = judge_work(
                    before, used, took_s, same_s=sampler.same_s, waits=bool(wait), spins=uses_cuda()
                )
                with suppress(OSError, AttributeError):
                    gpu = gpu or (OwnGpu() if uses_cuda() else None)
                use = (round(used.cpus_since(before, took_s), 2), used.memory_bytes, *(gpu.measure() if gpu else ()))
                before, at = used, at + took_s
                seen = beat._replace(place=sampler.place, wait=wait, few_s=sampler.few_s, use=use)
                now = seen._replace(done=steps.done, works=works, may_work=may_work, cpu_s=used.cpu_s)
                sending.sendto(seal(now, secret), target)
        time.sleep(SAMPLE_S)
