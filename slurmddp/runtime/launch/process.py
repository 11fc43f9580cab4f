"""Lines of a process, each in one piece; where its output goes; and that a forked process ends with its parent."""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from slurmddp import exit_codes

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent ends."""
LIBC = ctypes.CDLL(None, use_errno=True)


def print_line(text: object, stream: "TextIO | None" = None) -> None:
    """Write a line, to standard output unless a stream is given, by one call of the system; on a full disk it is lost.

    `print` of an unbuffered Python writes the end of the line apart, so that the lines of several ranks, or torch's,
    mix in a log.
    """
    stream = stream or sys.stdout
    with suppress(OSError):
        stream.write(f"{text}\n")
        stream.flush()


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
