"""Checks that the nodes of a job resolve and reach each other, and have the same time.

The ranks talk through a store, so that no collective can hang.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

from torch._C._distributed_c10d import HashStore

from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.rules import finding, judge_clocks
from slurmddp.runtime.launch.addresses import resolve, source_address
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous.head_store import reconnect

ANSWER_LIMIT: Final = timedelta(seconds=60)
"""For a rank to answer; the slowest check, by a rank that cannot reach its peers, takes half of it."""
CONNECT_LIMIT_S: Final = 3.0
_PORTS: Final = 50
"""Number of ports after the job's own that are tried for a free one."""
_AT_ONCE: Final = 16

Tried = dict[str, Any]
"""`host` and the `other` node, the `addresses` of its name there, the `target` that was tried, `why` it failed."""


class StoreChannel:
    """One rank's access to the values of all ranks, by the store in which they have met."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._store = reconnect(rank) if rank.world_size > 1 else HashStore()

    def gather(self, topic: str, value: Any) -> list[Any]:
        """Send a value that JSON can hold; return the values that are not None on rank 0, nothing on the others.

        A topic is used once.
        """
        self._store.set(f"{topic}/{self._rank.rank}", json.dumps(value))
        if not self._rank.is_main:
            return []
        values = (self._receive(f"{topic}/{number}") for number in range(self._rank.world_size))
        return [value for value in values if value is not None]

    def broadcast(self, topic: str, value: Any = None) -> Any:
        """Return rank 0's value on all ranks."""
        if self._rank.is_main:
            self._store.set(topic, json.dumps(value))
        return self._receive(topic)

    def share(self, topic: str, value: Any = None) -> list[Any]:
        """Return on all ranks what `gather` returns on rank 0, when all ranks have called this."""
        return list(self.broadcast(f"{topic}/all", self.gather(topic, value)))

    def _receive(self, topic: str) -> Any:
        self._store.wait([topic], ANSWER_LIMIT)
        return json.loads(self._store.get(topic))


def check_ports(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node listen at a port near the job's, and all others connect to it; rank 0 returns what failed."""
    listener = None
    if rank.local_rank == 0:  # the kernel accepts as many connections as the backlog holds
        for port in (*range(rank.master_port + 2, rank.master_port + 2 + _PORTS), 0):
            with suppress(OSError):
                listener = socket.create_server(("", port), backlog=4096)
                break
    another = next((host for host in reversed(rank.hosts) if host != rank.host), rank.master_addr)
    own = source_address(rank.master_addr if rank.node_rank else another) or ""
    nodes = channel.share("listens", [rank.host, own, listener.getsockname()[1]] if listener else None)
    others = [node for node in nodes if node[0] != rank.host] if listener else []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = channel.gather("reached", list(pool.map(partial(_reach, rank.host), others)))
    channel.share("ports")
    if listener:
        listener.close()
    return list(judge_ports(list(chain.from_iterable(answers))))


def _reach(host: str, node: tuple[str, str, int]) -> Tried:
    """Connect to another node, by its own address where its name does not resolve."""
    other, address, port = node
    addresses = sorted({address.removeprefix("::ffff:") for address in resolve(other)})
    target, why = addresses[0] if addresses else address, ""
    try:
        socket.create_connection((target, port), timeout=CONNECT_LIMIT_S).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "no answer"
    return {"host": host, "other": other, "addresses": addresses, "target": f"{target} port {port}", "why": why}


def judge_ports(tried: Sequence[Tried]) -> Iterator[Finding]:
    """Yield the names that do not resolve and the ways that are closed, or that all is well."""
    for each in tried:
        if not each["addresses"]:
            yield finding("names", "other", host=each["host"], name=each["other"])
        if each["why"]:
            yield finding("ports", "closed", **each)
    names = {each["other"]: "/".join(each["addresses"]) for each in tried}
    if tried and all(each["addresses"] for each in tried):
        listed = ", ".join(f"{host} {addresses}" for host, addresses in sorted(names.items())[:4])
        yield finding("names", "ok", nodes=len(names), listed=listed)
    if tried and not any(each["why"] for each in tried):
        yield finding("ports", "ok", ways=len(tried))


def check_clocks(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node read its clock between two readings of rank 0's; rank 0 returns the wrong clocks."""
    began = channel.broadcast("clocks", time.time())
    times = channel.gather("time", [rank.host, time.time()] if rank.local_rank == 0 else None)
    ended = time.time()
    found = list(judge_clocks(began, ended, times))
    if len(times) > 1 and not found:
        most_s = max(max(abs(time_s - began), abs(time_s - ended)) for _, time_s in times)
        found.append(finding("clock", "ok", most_ms=most_s * 1000))
    return found
