"""Settings of a process that was just forked: where its output goes, and that it ends with its parent."""

import ctypes
import os
import signal
import sys
from pathlib import Path

from slurmddp import exit_codes

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent ends."""
LIBC = ctypes.CDLL(None, use_errno=True)


def redirect_output(path: Path) -> None:
    """Append both output streams, also those of C code, to a file; a new file is private."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def signal_at_parent_death(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when the thread that forked it ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which has just forked it, ends."""
    signal_at_parent_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(exit_codes.RETRYABLE)
