"""Checks that the nodes of a job resolve and reach each other, share the run's folder, and have the same time.

One more: that a tracker's server can be reached. The ranks talk through a store, so that no collective can hang.
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final, Optional
from urllib.parse import urlsplit

from torch._C._distributed_c10d import HashStore

from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.rules import judge_clocks, name_finding
from slurmddp.runtime.launch.addresses import resolve, source_address
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous.head_store import reconnect

ANSWER_LIMIT: Final = timedelta(seconds=60)
"""For a rank to answer; the slowest check, by a rank that cannot reach its peers, takes half of it."""
CONNECT_LIMIT_S: Final = 3.0
SHARED_LIMIT_S: Final = 10.0
"""For a file of one node to be seen by another; NFS caches attributes for a minute at most."""
LAG_S: Final = 2.0
"""With a longer lag than this, ranks wait for checkpoints."""
_PORTS: Final = 50
"""Number of ports after the job's own that are tried for a free one."""
_AT_ONCE: Final = 16

Tried = dict[str, Any]
"""`host` and the `other` node, the `addresses` of its name there, the `target` that was tried, `why` it failed."""
Seen = tuple[str, str, Optional[float]]
"""The node that reads, the one that has written, and after how many seconds its file was seen; None when it was not."""


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
            yield name_finding(each["host"], each["other"], f"the name {each['other']} does not resolve")
        if each["why"]:
            what = f"{each['other']} ({each['target']}) cannot be reached: {each['why']}"
            why = "the ranks of the two nodes never meet"
            advice = (
                "choose ports that the firewall lets through by --port-range, a network by --interface, or "
                f"leave a node out by --exclude {each['other']}"
            )
            yield Finding(check="ports", level="error", host=each["host"], what=what, why=why, advice=advice)
    names = {each["other"]: "/".join(each["addresses"]) for each in tried}
    if tried and all(each["addresses"] for each in tried):
        listed = ", ".join(f"{host} {addresses}" for host, addresses in sorted(names.items())[:4])
        yield Finding(check="names", level="ok", what=f"all {len(names)} nodes resolve each other: {listed}")
    if tried and not any(each["why"] for each in tried):
        yield Finding(check="ports", level="ok", what=f"all {len(tried)} ways between the nodes are open")


def check_folder(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node write a file into the run's folder that all others read; rank 0 returns what failed."""
    run, leads, written = rank.run_dir, rank.local_rank == 0, False
    if run is None:
        return []

    def mark_of(node: int) -> Path:  # no earlier check has written this one: the time until it is seen is measured
        return run.node_mark(rank.job, rank.attempt, node).with_suffix(".seen")

    own = mark_of(rank.node_rank)
    with suppress(OSError):  # why a node cannot write is among the facts
        written = leads and bool(own.write_text(rank.host))
    nodes = channel.share("write", [rank.host, rank.node_rank, written] if leads else None)
    marks = {host: mark_of(node) for host, node, written in nodes if written}
    seen = channel.gather("read", _await_marks(rank.host, marks) if leads else [])
    channel.share("folder")
    own.unlink(missing_ok=True)
    return list(judge_folder(len(nodes), list(chain.from_iterable(seen))))


def _await_marks(reader: str, marks: Mapping[str, Path]) -> list[Seen]:
    began, seen = time.monotonic(), dict[str, float | None](dict.fromkeys(marks))
    while None in seen.values() and time.monotonic() - began < SHARED_LIMIT_S:
        for writer in [writer for writer, after_s in seen.items() if after_s is None]:
            with suppress(OSError):
                if marks[writer].read_text() == writer:
                    seen[writer] = time.monotonic() - began
        time.sleep(0.01)
    return [(reader, writer, after_s) for writer, after_s in seen.items()]


def judge_folder(nodes: int, seen: Sequence[Seen]) -> Iterator[Finding]:
    """Yield which nodes see the files of which other nodes late or not at all, or that all do in time."""
    for reader, writer, after_s in seen:
        if after_s is None or after_s > LAG_S:
            late = f"only after {after_s:.1f} s" if after_s else f"not within {SHARED_LIMIT_S:.0f} s"
            yield Finding(
                check="folder",
                level="warning" if after_s else "error",
                host=reader,
                what=f"sees what {writer} writes into the run's folder {late}",
                why="a rank that is to read a checkpoint waits for it",
                advice="put the run's folder on another file system that all nodes share, by --runs-dir",
            )
    lags = [after_s for _, _, after_s in seen if after_s is not None]
    if lags and len(lags) == nodes**2:
        what = f"{nodes} nodes write, and see each other's files within {max(lags):.2f} s"
        yield Finding(check="folder", level="ok", what=what)


def check_clocks(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node read its clock between two readings of rank 0's; rank 0 returns the wrong clocks."""
    began = channel.broadcast("clocks", time.time())
    times = channel.gather("time", [rank.host, time.time()] if rank.local_rank == 0 else None)
    ended = time.time()
    found = list(judge_clocks(began, ended, times))
    if len(times) > 1 and not found:
        most_s = max(max(abs(time_s - began), abs(time_s - ended)) for _, time_s in times)
        found.append(Finding(check="clock", level="ok", what=f"clocks are at most {most_s * 1000:.1f} ms apart"))
    return found


def check_tracker(rank: Rank, _: StoreChannel) -> list[Finding]:
    """Connect from rank 0's node to wandb's server, if wandb is installed there and would use it."""
    mode, proxy = os.environ.get("WANDB_MODE", "online"), os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    if not rank.is_main or mode not in ("online", "shared") or proxy or find_spec("wandb") is None:
        return []
    server = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host, port = server.hostname or "", server.port or (80 if server.scheme == "http" else 443)
    try:
        socket.create_connection((host, port), timeout=CONNECT_LIMIT_S).close()
    except OSError as error:
        what = f"wandb's server {host} port {port} cannot be reached: {error}"
        why = "a program that uses wandb waits for it, and then fails"
        advice = "let it write files: --env WANDB_MODE=offline; `slurmddp status RUN` says how to upload them"
        return [Finding(check="tracker", level="warning", host=rank.host, what=what, why=why, advice=advice)]
    return [Finding(check="tracker", level="ok", host=rank.host, what=f"wandb's server {host} port {port} answers")]
