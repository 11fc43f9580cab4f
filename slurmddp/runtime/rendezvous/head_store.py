"""The key-value store of the rendezvous: a TCPStore that rank 0 holds on the head node.

The ranks share it until they end: by it they confirm a stop request, and their ends.
"""

import contextlib
import ctypes
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from slurmddp.background import run_in_background
from slurmddp.errors import PeerError, RankError
from slurmddp.runtime import patches
from slurmddp.runtime.launch.addresses import is_local, resolve
from slurmddp.runtime.launch.process import LIBC
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous.sealed_store import SealedStore

ANSWER_LIMIT_S = 10.0
"""How long a store that accepted the connection may take to answer."""
END_LIMIT_S = 60.0
"""How long rank 0, which holds the store, waits for the others when it has ended."""
MARGIN_S = 1.0
"""The other ranks wait for rank 0 this much longer than rank 0 waits for them."""

_RESOLVER = [getattr(LIBC, name, None) for name in ("__res_init", "__res_state")]
"""Of glibc alone."""


class Rendezvous:
    """The ranks that have met, and the store that they share until they end."""

    def __init__(self, rank: Rank, store: SealedStore, ranks: dict[str, str]) -> None:
        self._rank, self._store = rank, store
        self.ranks_by_host = ranks
        """As `claims.ranks_by_host` returns them; known to rank 0 alone."""

    def confirm_end(self, limit_s: float = END_LIMIT_S) -> bool:
        """Report that this rank ended well; return whether that arrived, on rank 0 whether all reported it in time.

        The others do not wait for an answer, because rank 0 may leave as soon as it has all reports. Starts no thread:
        an interpreter that ends allows none.
        """
        rank = self._rank
        with contextlib.suppress(PeerError, RuntimeError):
            store = self._store if rank.is_main else reconnect(rank)
            store.set(f"ended/{rank.rank}", "well")
            keys = [f"ended/{number}" for number in range(rank.world_size)]
            return not rank.is_main or wait_for_keys(store, keys, limit_s)
        return False

    def confirm_stop(self, limit_s: float) -> list[int]:
        """Report that this rank was asked to stop; return the ranks that did not report it within `limit_s` seconds.

        Rank 0 waits for all reports, publishes which are missing, and returns when the others have read it; if rank 0
        does not answer, it is the missing one.
        Called by the signal thread, over a connection of its own, because the main thread may be using the store.
        Where rank 0 was killed, a child that it has forked may hold its port, and never answers.
        """
        rank = self._rank
        with contextlib.suppress(PeerError, RuntimeError, futures.TimeoutError):
            store = run_in_background(lambda: reconnect(rank, limit_s)).result(limit_s)
            store.set(f"noticed/{rank.rank}", "yes")
            if rank.is_main:
                reports = {number: f"noticed/{number}" for number in range(rank.world_size)}
                in_time = wait_for_keys(store, [*reports.values()], limit_s)
                silent = [] if in_time else [number for number, key in reports.items() if not store.check([key])]
                store.set("silent", json.dumps(silent))
                readers = [f"told/{number}" for number in range(1, rank.world_size) if number not in silent]
                wait_for_keys(store, readers, MARGIN_S)
                return silent
            if wait_for_keys(store, ["silent"], limit_s + MARGIN_S):
                published: list[int] = json.loads(store.get("silent"))
                store.set(f"told/{rank.rank}", "yes")
                return published
        return [0]


def open_store(rank: Rank, limit_s: float) -> tuple[SealedStore, bool]:
    """Return the store, and whether this process judges the claims.

    Raises RankError when rank 0 is not on the head, PeerError when there is no store of this job within `limit_s`.
    """
    store: Store | None = None
    judges = rank.is_main
    if rank.is_main and not rank.agent_store:
        if not is_local(rank.master_addr):
            raise RankError(
                f"rank 0 runs on {rank.host}, but MASTER_ADDR {rank.master_addr} is another host; "
                "export MASTER_ADDR as the first host of the job"
            )
        try:
            store = _create_store(rank, is_server=True)
        except OSError:
            judges = False  # the port is taken: by a second rank 0, or by another program
    if store is None:
        _await_listener(rank, rank.master_addr, rank.store_port, limit_s)
        # TCPStore alone would retry after whole seconds with a page of warnings. It would also wait forever for an
        # answer from a listener that is no store; a thread bounds that wait.
        try:
            store = run_in_background(lambda: _create_store(rank, is_server=False)).result(ANSWER_LIMIT_S)
        except (RuntimeError, futures.TimeoutError) as error:  # torch's distributed errors are RuntimeErrors
            raise foreign_program(rank) from error
    return _seal(rank, store), judges


def reconnect(rank: Rank, limit_s: float = ANSWER_LIMIT_S) -> SealedStore:
    """Return the store over a new connection; one that was idle for days may be lost.

    Raises PeerError when nothing listens at its port within `limit_s` seconds. Starts no thread.
    """
    _await_listener(rank, rank.master_addr, rank.store_port, limit_s)
    return _seal(rank, _create_store(rank, is_server=False))


def wait_for_keys(store: SealedStore, keys: list[str], limit_s: float) -> bool:
    """Wait until all keys are set; return whether they were in time."""
    with contextlib.suppress(dist.DistStoreError):
        store.wait(keys, timedelta(seconds=max(limit_s, 0.001)))
        return True
    return False


def _seal(rank: Rank, store: Store) -> SealedStore:
    """Return our part of a store; the store of torchrun's agent outlives a restart of the ranks.

    Without a secret, as where torchrun was started by hand, it is open to every program that reaches it.
    """
    return SealedStore(store, f"slurmddp/{rank.restarts if rank.agent_store else 0}", rank.secret)


def _create_store(rank: Rank, *, is_server: bool) -> Store:
    socket_of_server = listen(rank.master_addr, rank.store_port) if is_server else None
    with _short_lookups():
        return TCPStore(
            rank.master_addr,
            rank.store_port,
            None,
            is_master=is_server,
            timeout=timedelta(seconds=ANSWER_LIMIT_S),
            wait_for_workers=False,
            master_listen_fd=socket_of_server,
        )


def listen(head: str, port: int) -> int:
    """Return a listening socket for a store on the head: for IPv4 alone, unless the head has an address of IPv6.

    The server looks up the name of each client before it accepts the next (torch 2.13, formatSockAddr). At a socket for
    both versions a client of IPv4 has an address such as ::ffff:10.0.0.1, which /etc/hosts does not have, so that a
    server of DNS is asked for each of the ranks. Raises OSError when the port is taken.
    """
    both = any(":" in address and not address.startswith("::ffff:") for address in resolve(head))
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=4096, dualstack_ipv6=both).detach()


@contextlib.contextmanager
def _short_lookups() -> Iterator[None]:
    """Let this thread wait for a server of DNS for a second, not ten.

    Each client of torch's store asks for the name of the head's address twice, and of the hundreds that begin at the
    same moment some get no answer. The first two numbers of glibc's `_res` are the seconds of a try and how many there
    are (retrans and retry in resolver(3)); each thread has its own.
    """
    initialize, state = _RESOLVER
    if not (initialize and state):
        yield
        return
    initialize()
    state.restype = ctypes.POINTER(ctypes.c_int)
    tries = state()
    given = tries[0:2]
    tries[0], tries[1] = 1, 1
    try:
        yield
    finally:
        tries[0], tries[1] = given


def _await_listener(rank: Rank, head: str, port: int, limit_s: float) -> None:
    """Return when a store listens on the head. Raises PeerError when none does within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return socket.create_connection((head, port), timeout=2).close()
        except OSError as error:
            if time.monotonic() > deadline:
                addresses = resolve(head)
                name = f"the name resolves to {addresses[0]}" if addresses else "the name does not resolve"
                raise PeerError(
                    f"rank {rank.rank} on {rank.host} reached no rank 0 at {head} port {port} within {limit_s:g} s: "
                    f"{name}; {error}"
                ) from error
            time.sleep(0.05)


def foreign_program(rank: Rank) -> PeerError:
    """Return the error of a port that two jobs have got, as ports are random, or that another program has."""
    return PeerError(
        f"port {rank.store_port} on {rank.master_addr} is taken by a program that is not rank 0 of this job"
    )


def await_program_stores(rank: Rank) -> None:
    """Let the store that rank 0 opens for the program listen before this rank connects to it.

    torch's client that is refused waits 0.25 to 0.75 s before it tries again, and longer each time (torch 2.13,
    ExponentialBackoffWithJitter). All ranks leave the rendezvous at the same time: most of them would be too early.
    """

    def wrap(create: Callable[..., Store]) -> Callable[..., Store]:
        def create_store(**options: Any) -> Store:
            host, port = options["host_name"], options["port"]
            if not options["is_master"]:
                _await_listener(rank, host, port, options["timeout"].total_seconds())
            elif port:
                with contextlib.suppress(OSError):  # a second store at this port shares the server of the first
                    options["master_listen_fd"] = listen(host, port)
            return create(**options)

        return create_store

    patches.replace(patches.PROGRAM_STORE, wrap)
