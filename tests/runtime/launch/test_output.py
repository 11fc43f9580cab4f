"""A line is written in one piece."""

import os
import socket
import subprocess
import sys


def test_a_line_is_one_write_also_of_an_unbuffered_python():
    """A datagram is what one call of the system writes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    program = "from slurmddp.runtime.launch.process import print_line\nprint_line('rank 1 is slow: 7 ms')"
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003 - positional only
        subprocess.run([sys.executable, "-u", "-c", program], stdout=theirs, check=True)
        assert ours.recv(4096) == b"rank 1 is slow: 7 ms\n"
