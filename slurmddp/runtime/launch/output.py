"""Lines of a rank, each written in one piece."""

import sys
from typing import TextIO


def print_line(text: object, stream: TextIO | None = None) -> None:
    """Write a line, to standard output unless a stream is given, by one call of the system.

    `print` of an unbuffered Python writes the end of the line apart, so that the lines of several ranks, or torch's,
    mix in a log.
    """
    stream = stream or sys.stdout
    stream.write(f"{text}\n")
    stream.flush()
