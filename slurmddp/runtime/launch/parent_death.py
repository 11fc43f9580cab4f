"""Ends a process with the one that started it."""

import ctypes
import os
import signal

from slurmddp import exit_codes

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal a process gets when its parent dies."""
LIBC = ctypes.CDLL(None, use_errno=True)


def signal_at_end_of_parent(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when the thread that forked it ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which has just forked it, ends."""
    signal_at_end_of_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(exit_codes.RETRYABLE)
