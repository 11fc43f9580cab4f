"""A beat, what a rank says of itself every few seconds, and its datagram.

The datagram has the values as JSON, behind a code made with the attempt's secret (HMAC, RFC 2104).
"""

from __future__ import annotations
import hmac
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from errno import EADDRINUSE
from typing import Final, NamedTuple

MOST_BYTES: Final = 4096
"""A datagram has less."""
_CODE_BYTES: Final = 32


class Beat(NamedTuple):
    """What a rank says of itself."""

    rank: int
    world_size: int
    step: str
    """The step of Slurm that the rank is in: a script may start several trainings. Empty without one."""
    host: str
    pid: int
    every_s: float
    """Seconds between two beats."""
    done: int = 0
    """Steps of its optimizers."""
    place: str = ""
    """Where the main thread is: the innermost function outside of torch and the standard library, `f() at x.py:7`."""
    wait: str = ""
    """The collective in which the main thread waits; empty elsewhere."""
    works: bool = False
    """Whether the rank, with the processes below it, has worked since the beat before."""
    may_work: bool = False
    """Whether it has used the CPU without getting anywhere for sure, or is blocked in the kernel."""
    few_s: float = 0.0
    """For how long the main thread has been seen in three lines at most."""
    cpu_s: float = 0.0
    """CPU time of the process."""
    use: Sequence[float] = ()
    """The CPUs and the host memory in bytes that it uses; and what `OwnGpu` measures, where it has one."""


def seal(beat: Beat, secret: str) -> bytes:
    """Return the datagram of a beat."""
    content = json.dumps(beat, separators=(",", ":")).encode("ascii")
    return _code(secret, content) + content


def open_beat(datagram: bytes, secret: str) -> Beat | None:
    """Return the beat of a datagram; None for one that no process of this attempt has sent."""
    code, content = datagram[:_CODE_BYTES], datagram[_CODE_BYTES:]
    return Beat(*json.loads(content)) if hmac.compare_digest(code, _code(secret, content)) else None


def _code(secret: str, content: bytes) -> bytes:
    """Return the code of a beat; in another version of slurmddp, whose beats have other values, it is another one."""
    return hmac.digest(secret.encode(), repr(Beat.__annotations__).encode() + content, "sha256")


def open_socket(first: int, last: int, start: int) -> socket.socket:
    """Return a socket for beats at a free port of the range, which is tried from `start` on.

    Raises OSError when all ports are taken.
    """
    both = socket.has_dualstack_ipv6()
    opened = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_DGRAM)
    if both:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    number = last - first + 1
    for place in range(number):
        with suppress(OSError):
            opened.bind(("", first + (start + place) % number))
            return opened
    raise OSError(EADDRINUSE, "all ports are taken")
