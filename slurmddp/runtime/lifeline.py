"""Ends a process with the one that started it."""

import ctypes
import os
import signal

from slurmddp import outcome

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal a process gets when its parent dies."""
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which has just forked it, ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(outcome.RETRYABLE)
