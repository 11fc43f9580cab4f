"""Classifies how a rank ended: its exit status, which decides on another attempt, and one line of reason. Pure."""

import errno
import re
import signal
import socket
import traceback
from typing import NamedTuple

from slurmddp import exit_codes
from slurmddp.errors import SlurmddpError

RETRYABLE_ERRNOS = frozenset(
    {errno.ESTALE, errno.EADDRINUSE, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EREMOTEIO, errno.ENOSPC, errno.EDQUOT}
)
"""For a full disk the supervisor waits before the next start."""
RETRYABLE_TYPES = ("DistNetworkError", "DistStoreError")
"""Of torch.distributed, by name: a program without torch does not import it."""
RETRYABLE_TEXTS = (
    *("connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "no route to host"),
    *("timed out", "timeout", "recvvalue failed", "address already in use", "stale file handle"),
    *("remote process exited", "nccl communicator was aborted", "uncorrectable ecc", "uncorrectable nvlink", "xid"),
    *("is killed by signal", "exited unexpectedly", "unexpected pos", "failed writing file"),
)
"""Parts of torch's RuntimeErrors after the loss of a peer, a device or a loader (gloo, NCCL, CUDA, DataLoader), and of
`torch.save` on a full disk."""

LAUNCHERS = ("torch/distributed/run.py", "accelerate/commands/launch.py", "deepspeed/launcher/runner.py")
"""The programs that start ranks, by the ends of their paths."""

REASON_LENGTH = 300
_AROUND_GLOO = re.compile(r"(?s)\[[^\]]*gloo/transport/[^\]]*\] | This is typically caused by .*")
"""What torch writes around gloo's own words: the line of its source, and advice in general."""
TERMINATED = 128 + signal.SIGTERM
ENDS_BY_NOTICE = frozenset({exit_codes.STOPPED, TERMINATED, 128 + signal.SIGUSR1, 128 + signal.SIGUSR2})
"""Exit statuses by which a program says that a stop signal ended it: ours, and by the convention of shells."""


class Verdict(NamedTuple):
    """How a rank ended."""

    status: int
    """Of `slurmddp.exit_codes`."""
    reason: str
    """One line."""


DONE = Verdict(exit_codes.DONE, "done")


class Stopped(SystemExit):
    """Ends the program after a stop request, when its state is durable; not an error."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(exit_codes.STOPPED)
        self.step = step
        """Steps finished."""
        self.reason = reason
        """One line."""


def judge(error: BaseException) -> Verdict:
    """Return the verdict on a rank that an exception has ended."""
    if isinstance(error, Stopped):
        return Verdict(exit_codes.STOPPED, error.reason)
    if isinstance(error, SystemExit):
        status = exit_status(error)
        return Verdict(exit_codes.FAILED, f"exit status {status}") if status else DONE
    if isinstance(error, SlurmddpError):
        known = error.exit_status in (exit_codes.RETRYABLE, exit_codes.FENCED)
        status = error.exit_status if known else exit_codes.FAILED
        return Verdict(status, one_line(str(error)))
    seen = [error]
    while (cause := seen[-1].__cause__) is not None and not any(cause is each for each in seen):
        seen.append(cause)
    status = exit_codes.RETRYABLE if any(map(_is_retryable, seen)) else exit_codes.FAILED
    return Verdict(status, one_line(_AROUND_GLOO.sub("", f"{type(error).__name__}: {error}")))


def is_of_launcher(error: BaseException) -> bool:
    """Return whether an exception has come through a program that starts ranks, which the program has called."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_filename.endswith(LAUNCHERS) for frame, _ in frames)


def exit_status(error: BaseException) -> int:
    """Return the status that Python would end with, and 143 for Lightning's SIGTERMException, which sets none."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return TERMINATED if type(error).__name__ == "SIGTERMException" else 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def one_line(text: str) -> str:
    """Return a text as one printable line."""
    words = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in words)[:REASON_LENGTH]


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, (ConnectionError, TimeoutError, socket.timeout)) or type(error).__name__ in RETRYABLE_TYPES:
        return True
    if isinstance(error, OSError) and error.errno in RETRYABLE_ERRNOS:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in RETRYABLE_TEXTS)
