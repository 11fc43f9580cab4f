"""Chooses the ports of an attempt: MASTER_PORT, and the next one for the rendezvous. Reads proc(5)."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from slurmddp.batch.attempt import Job

_TRIES: Final = 100


def choose_ports(job: Job, number: int, ports: tuple[int, int], is_used: Callable[[int], bool]) -> tuple[int, int]:
    """Return two neighbouring ports that are free on this node.

    Job and attempt decide where in the range the search begins, so the next attempt gets other ports. Without a free
    pair the last one is returned: the ranks fail, and the next attempt tries others.
    """
    pair = ports
    for attempt in range(_TRIES):
        spread = job.number * 7 + job.restarts * 31 + number * 13 + attempt
        first = ports[0] + 2 * (spread % ((ports[1] - ports[0] + 1) // 2))
        pair = first, first + 1
        if not any(map(is_used, pair)):
            break
    return pair


def find_used_ports(tables: Iterable[Path] = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))) -> set[int]:
    """Return the TCP ports in use on this node."""
    return {port for table in tables for port in _read_ports(table)}


def _read_ports(table: Path) -> Iterator[int]:
    """Yield the local ports of a table of proc(5), whose second column is address:port in hexadecimal."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        yield int(line.split()[1].rpartition(":")[2], 16)
