"""Sends this process's output to a file of its own."""

import os
import sys
from pathlib import Path


def send_output(path: Path) -> None:
    """Append both output streams, C's too, to a file; made private when it is new."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
