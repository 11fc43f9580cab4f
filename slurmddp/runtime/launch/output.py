"""What this process prints: lines in one piece, and a file of its own for all of it."""

import os
import sys
from pathlib import Path
from typing import TextIO


def print_line(text: object, stream: TextIO | None = None) -> None:
    """Write a line, to standard output unless a stream is given, by one call of the system.

    `print` of an unbuffered Python writes the end of the line apart, so that the lines of several ranks, or torch's,
    mix in a log.
    """
    stream = stream or sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


def send_output(path: Path) -> None:
    """Append both output streams, C's too, to a file; made private when it is new."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
