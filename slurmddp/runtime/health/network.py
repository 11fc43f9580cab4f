"""Checks that the nodes of a job resolve and reach each other, share the run's folder, and have the same time."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.health.facts import error_name
from slurmddp.runtime.health.rules import judge_clocks, name_finding
from slurmddp.runtime.health.store_channel import StoreChannel
from slurmddp.runtime.launch.addresses import resolve, source_address
from slurmddp.runtime.launch.rank import Rank

CONNECT_LIMIT_S: Final = 3.0
SHARED_LIMIT_S: Final = 10.0
"""For a file of one node to be seen by another; NFS caches attributes for a minute at most."""
LAG_S: Final = 2.0
"""With a longer lag than this, ranks wait for checkpoints."""
_PORTS: Final = 50
"""Number of ports after the job's own that are tried for a free one."""
_AT_ONCE: Final = 16

Node = dict[str, Any]
"""`host`, `port`, `address`: where a node listens."""
Seen = dict[str, float | None]
"""After how many seconds each node's file was seen; None when it was not."""


def check_ports(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node listen at a port near the job's, and all others connect to it; rank 0 returns what failed."""
    listener = _listen(rank) if rank.local_rank == 0 else None
    nodes = channel.broadcast("nodes", [node for node in channel.gather("listens", _node(rank, listener)) if node])
    answers = channel.gather("reached", _reach_all(rank, nodes) if listener else None)
    channel.barrier("ports")
    if listener:
        listener.close()
    return list(_judge_ports(nodes, [each for each in answers if each])) if rank.is_main else []


def _listen(rank: Rank) -> socket.socket:
    for port in range(rank.master_port + 2, rank.master_port + 2 + _PORTS):
        with suppress(OSError):
            listener = socket.create_server(("", port), backlog=128)
            threading.Thread(target=_accept, args=[listener], daemon=True).start()
            return listener
    return socket.create_server(("", 0), backlog=128)


def _accept(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


def _node(rank: Rank, listener: socket.socket | None) -> Node | None:
    if listener is None:
        return None
    target = next((host for host in reversed(rank.hosts) if host != rank.host), rank.master_addr)
    address = source_address(rank.master_addr if rank.node_rank else target)
    return {"host": rank.host, "port": listener.getsockname()[1], "address": address or ""}


def _reach_all(rank: Rank, nodes: Sequence[Node]) -> dict[str, Any]:
    others = [node for node in nodes if node["host"] != rank.host]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tried = list(pool.map(_reach, others))
    return {"host": rank.host, "tried": dict(zip((node["host"] for node in others), tried, strict=True))}


def _reach(node: Node) -> dict[str, Any]:
    """Return what the node's name resolves to here, by which address it was tried, and why that failed."""
    addresses = sorted({address.removeprefix("::ffff:") for address in resolve(node["host"])})
    target = addresses[0] if addresses else node["address"]
    try:
        socket.create_connection((target, node["port"]), timeout=CONNECT_LIMIT_S).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "no answer"
        return {"addresses": addresses, "target": target, "why": why}
    return {"addresses": addresses, "target": target, "why": ""}


def _judge_ports(nodes: Sequence[Node], answers: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    ports = {node["host"]: node["port"] for node in nodes}
    for each in answers:
        for other, tried in each["tried"].items():
            if not tried["addresses"]:
                yield name_finding(each["host"], other, f"the name {other} does not resolve")
            if tried["why"]:
                yield Finding(
                    check="ports",
                    level="error",
                    host=each["host"],
                    what=f"{other} ({tried['target']} port {ports[other]}) cannot be reached: {tried['why']}",
                    why="the ranks of the two nodes never meet",
                    advice="choose ports that the firewall lets through by --port-range, a network by --interface, or "
                    f"leave a node out by --exclude {other}",
                )
    yield from _describe_open_ports(answers)


def _describe_open_ports(answers: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    tried = [each for one in answers for each in one["tried"].values()]
    if tried and all(each["addresses"] for each in tried):
        names = {other: each["addresses"] for one in answers for other, each in one["tried"].items()}
        listed = ", ".join(f"{host} {'/'.join(addresses)}" for host, addresses in sorted(names.items())[:4])
        yield Finding(check="names", level="ok", what=f"all {len(names)} nodes resolve each other: {listed}")
    if tried and not any(each["why"] for each in tried):
        yield Finding(check="ports", level="ok", what=f"all {len(tried)} ways between the nodes are open")


def check_folder(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node write a file into the run's folder that all others read; rank 0 returns what failed."""
    if rank.run_dir is None:
        return []
    own = _fresh_mark(rank.run_dir, rank, rank.node_rank)
    written = [rank.host, _write(own, rank.host), rank.node_rank] if rank.local_rank == 0 else None
    nodes = [node for node in channel.broadcast("wrote", channel.gather("write", written)) if node]
    marks = {host: _fresh_mark(rank.run_dir, rank, node) for host, error, node in nodes if not error}
    read = channel.gather("read", [rank.host, _await_marks(marks)] if rank.local_rank == 0 else None)
    channel.barrier("folder")
    own.unlink(missing_ok=True)
    return list(_judge_folder(nodes, [each for each in read if each])) if rank.is_main else []


def _fresh_mark(run: RunDir, rank: Rank, node: int) -> Path:
    """Return a file that no earlier check has written, since the time until it is seen is measured."""
    return run.node_mark(rank.job, rank.attempt, node).with_suffix(".seen")


def _write(path: Path, text: str) -> str:
    """Write a file; return the name of the error, empty if there was none."""
    try:
        path.write_text(text)
    except OSError as error:
        return error_name(error)
    return ""


def _await_marks(marks: Mapping[str, Path]) -> Seen:
    began, seen = time.monotonic(), Seen(dict.fromkeys(marks))
    while None in seen.values() and time.monotonic() - began < SHARED_LIMIT_S:
        for host in [host for host, after_s in seen.items() if after_s is None]:
            with suppress(OSError):
                if marks[host].read_text() == host:
                    seen[host] = time.monotonic() - began
        time.sleep(0.01)
    return seen


def _judge_folder(
    nodes: Sequence[Sequence[Any]], read: Sequence[tuple[str, Mapping[str, float | None]]]
) -> Iterator[Finding]:
    for reader, seen in read:
        for writer, after_s in seen.items():
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
    lags = [after_s for _, seen in read for after_s in seen.values() if after_s is not None]
    if lags and len(lags) == len(nodes) ** 2:
        what = f"{len(nodes)} nodes write, and see each other's files within {max(lags):.2f} s"
        yield Finding(check="folder", level="ok", what=what)


def check_clocks(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let each node read its clock between two readings of rank 0's; rank 0 returns the wrong clocks."""
    began = channel.broadcast("clocks", time.time())
    answers = channel.gather("time", [rank.host, time.time()] if rank.local_rank == 0 else None)
    ended, times = time.time(), [each for each in answers if each]
    found = list(judge_clocks(began, ended, times))
    if rank.is_main and rank.nodes > 1 and not found:
        most_s = max(max(abs(time_s - began), abs(time_s - ended)) for _, time_s in times)
        found.append(Finding(check="clock", level="ok", what=f"clocks are at most {most_s * 1000:.1f} ms apart"))
    return found
