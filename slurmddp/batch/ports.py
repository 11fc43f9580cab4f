"""Chooses the ports of an attempt: MASTER_PORT, and the next one for the rendezvous."""

from collections.abc import Callable
from typing import Final

from slurmddp.batch.attempt import Job

_TRIES: Final = 100


def choose_ports(job: Job, number: int, ports: tuple[int, int], is_free: Callable[[int], bool]) -> tuple[int, int]:
    """Return two neighbouring ports that are free on this node.

    Job and attempt decide where in the range the search begins, so the next attempt gets other ports. Without a free
    pair the last one is returned: the ranks fail, and the next attempt tries others.
    """
    pair = ports
    for attempt in range(_TRIES):
        spread = job.number * 7 + job.restarts * 31 + number * 13 + attempt
        first = ports[0] + 2 * (spread % ((ports[1] - ports[0] + 1) // 2))
        pair = first, first + 1
        if all(map(is_free, pair)):
            break
    return pair


def is_port_free(port: int) -> bool:
    """Return whether a server can listen at a port of this node now."""
    import socket  # noqa: PLC0415 - needed only to start the ranks, and every start would pay for it

    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError:
        return False
    return True
