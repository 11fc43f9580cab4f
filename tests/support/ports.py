"""Ports for the servers of tests."""

import itertools
import os
import socket

_FIRST, _COUNT = 12_000, 20_000
"""Below the kernel's own range (net.ipv4.ip_local_port_range): no connection of another process takes one meanwhile."""
_numbers = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free, another one at each call; processes begin at different places."""
    for number in _numbers:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port := _FIRST + number % _COUNT))
            except OSError:
                continue
            return port
    raise AssertionError
