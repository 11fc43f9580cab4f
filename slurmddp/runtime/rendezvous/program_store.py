"""The stores that the program opens for its process groups: no rank connects before rank 0 listens.

torch's client that is refused waits 0.25 to 0.75 s before it tries again, and longer each time (torch 2.13,
ExponentialBackoffWithJitter). All ranks leave the rendezvous at the same time, so that most of them would be too early.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from torch._C._distributed_c10d import Store

from slurmddp.runtime import patches
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous.head_store import listen, lost_connection_as

_SHORTEST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
_PROBE_S: Final = 5.0
"""Between two tries to connect, for a store that a process without this module opened."""


def announce_program_stores(rank: Rank, store: Store) -> None:
    """Let rank 0 say in the store of the rendezvous when a store of the program listens; the other ranks wait for it.

    Raises PeerError in the program when rank 0 is lost meanwhile.
    """
    if rank.agent_store:
        return
    pid = os.getpid()

    def prepare(options: dict[str, Any]) -> None:
        port = options["port"]
        if not port or os.getpid() != pid:  # the child of a fork would share the connection
            return
        if options["is_master"]:
            with contextlib.suppress(OSError):  # a second store at this port shares the server of the first
                options["master_listen_fd"] = listen(rank.master_addr, port)
            store.set(_key(port), "yes")
        else:
            with lost_connection_as(f"rank 0 on {rank.master_addr} left before its store listened at port {port}"):
                options["timeout"] -= _await_store(store, options["host_name"], port, options["timeout"])

    def wrap(create: Callable[..., Store]) -> Callable[..., Store]:
        def create_store(**options: Any) -> Store:
            prepare(options)
            return create(**options)

        return create_store

    patches.replace(patches.PROGRAM_STORE, wrap)


def _key(port: int) -> str:
    return f"listening/{port}"


def _await_store(store: Store, host: str, port: int, limit: timedelta) -> timedelta:
    """Wait until a store listens, for half the limit at most; return how long it took."""
    began = probed_at = time.monotonic()
    pause = _SHORTEST_PAUSE_S
    while not store.check([_key(port)]) and (now := time.monotonic()) - began < limit.total_seconds() / 2:
        if now - probed_at > _PROBE_S:
            if _accepts(host, port):
                break
            probed_at = now
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE_S)
    return timedelta(seconds=time.monotonic() - began)


def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), timeout=2).close()
        return True
    return False
