"""Keeps children of a rank alive from a stop request until the rank has saved. Standard library only.

With ProctrackType=proctrack/linuxproc Slurm sends its signals to every process of a step, with proctrack/cgroup to its
tasks alone. Protected are the processes of multiprocessing, however they start, and SERVICES. Other programs get the
signals: they could not tell Slurm's SIGTERM from that of `Popen.terminate`.
"""

import ctypes
import multiprocessing.process
import multiprocessing.util
import os
import platform
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from slurmddp.runtime import patches
from slurmddp.runtime.launch.process import LIBC
from slurmddp.runtime.stopping.signals import SIGNALS

SERVICES: Final = frozenset({"wandb-core"})
"""Programs that end at a message of their client, or when that has ended; no client sends them SIGTERM."""
PARENT_CHECK_S: Final = 5.0
"""A process of multiprocessing looks this often whether its parent still runs."""

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
SIGACTION_CALLS: Final = {"x86_64": (0xC000003E, 13), "aarch64": (0xC00000B7, 134)}
"""By machine: the kernel's number of the architecture, and that of rt_sigaction(2)."""

_protected: Final[set[int]] = set()
"""The ids of this process and those it was forked from, as far as they are protected."""


class _Protection:
    """Is part of each Process of multiprocessing. A process that was not forked unpickles it, which protects it."""

    def __reduce__(self) -> tuple[Callable[[int], "_Protection"], tuple[int]]:
        return _protect_spawned, (os.getpid(),)


def protect_children() -> _Protection:
    """Protect the children that this process starts from now on, and those that they start."""
    protection = _Protection()
    multiprocessing.process.current_process()._config[__name__] = protection  # type: ignore[attr-defined]  # noqa: SLF001 - each Process copies it
    multiprocessing.util.register_after_fork(protection, lambda _: _end_by_parent_alone(os.getppid()))
    # They start with signals blocked, until they are protected. The fork server keeps them blocked: it ends when the
    # processes that use it have ended.
    patches.replace(patches.FORKED_PROCESS, _signal_mask(signal.SIG_BLOCK, [signal.SIGTERM]))
    patches.replace(patches.SPAWNED_PROCESS, _signal_mask(signal.SIG_BLOCK, SIGNALS))
    patches.replace(patches.STARTED_PROGRAM, _with_protected_services)
    return protection


def _protect_spawned(parent: int) -> _Protection:
    """Protect this process, which has started with the signals blocked."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1, signal.SIGUSR2])
    _end_by_parent_alone(parent)
    return protect_children()


def _end_by_parent_alone(parent: int) -> None:
    """Let SIGTERM end this process when `parent` sends it, as `terminate` does, and not when Slurm does.

    Only sigwaitinfo shows the sender. Processes that this one starts get SIGTERM as usual.
    """
    if os.getpid() in _protected:  # before 3.12, multiprocessing calls what is registered for a fork in all processes
        return
    _protected.add(os.getpid())
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]))
    threading.Thread(target=_await_end, args=[parent, os.getppid()], daemon=True).start()


def _await_end(parent: int, starter: int) -> None:
    """Wait for the parent's SIGTERM, or its end; `starter` is the fork server, or the parent itself."""
    while os.getppid() == starter and Path(f"/proc/{parent}").exists():
        received = signal.sigtimedwait([signal.SIGTERM], PARENT_CHECK_S)
        if received and received.si_pid == parent:
            break
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


@contextmanager
def _signal_mask(how: int, numbers: Iterable[int]) -> Iterator[None]:
    """Change the mask of this thread in a `with`, or in each call of a function that this decorates."""
    before = signal.pthread_sigmask(how, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _with_protected_services(start: Callable[..., None]) -> Callable[..., None]:
    """Start programs as usual, without the mask of a protected process, and SERVICES deaf to SIGTERM."""
    deafen = _make_deafen()

    def start_protected(self: subprocess.Popen[Any], args: Any, *rest: Any, **options: Any) -> None:
        if isinstance(args, (list, tuple)) and args and Path(os.fsdecode(args[0])).name in SERVICES:
            options.setdefault("preexec_fn", deafen)
        with _signal_mask(signal.SIG_UNBLOCK, [signal.SIGTERM] if _protected else []):
            start(self, args, *rest, **options)

    return start_protected


def _make_deafen() -> Callable[[], None]:
    """Return what makes a forked process, and the program that it becomes, ignore SIGTERM for good.

    wandb-core, a Go program, ends at SIGTERM also when it has started with SIGTERM ignored or blocked: signal.Notify
    installs a handler and unblocks it. Therefore the kernel answers its rt_sigaction(2) for SIGTERM with success, and
    does nothing (seccomp(2)).
    """
    architecture, sigaction = SIGACTION_CALLS.get(platform.machine(), (0, 0))
    load, jump_if_equal, end, allow, succeed = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
    program = (
        *((load, 0, 0, 4), (jump_if_equal, 0, 5, architecture)),
        *((load, 0, 0, 0), (jump_if_equal, 0, 3, sigaction)),
        *((load, 0, 0, 16), (jump_if_equal, 0, 1, signal.SIGTERM)),
        *((end, 0, 0, succeed), (end, 0, 0, allow)),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    header = struct.pack("HP", len(program), ctypes.addressof(code))

    def deafen(code: object = code) -> None:
        del code  # kept alive for the kernel, which copies it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0)

    return deafen
