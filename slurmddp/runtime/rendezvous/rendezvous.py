"""Lets the ranks agree on who they are before any group forms, through a store of their own on the head.

Rank 0 holds a TCPStore, or it is a file that all see. Each process takes a number on arrival and leaves its claim
under it; rank 0 reads the claims as they come and publishes one verdict, by which everybody goes on or says what is
wrong.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from slurmddp.errors import PeerError, RankError
from slurmddp.runtime.health.preflight import Preflight
from slurmddp.runtime.launch.addresses import is_here, resolve
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous.srun_failures import unstarted
from slurmddp.version import __version__

ARRIVAL_LIMIT_S = 60.0
"""How long rank 0 waits for the others."""
LOOK_S = 2.0
"""How often it looks meanwhile whether srun has said that one of them will not come."""
END_LIMIT_S = 60.0
"""How long rank 0, which holds the store, stays up for the others when it has ended."""
ANSWER_LIMIT_S = 10.0
"""How long a store that took the connection may take to answer."""
SILENT_MARGIN_S = 1.0
"""So much longer than rank 0 waits for the others do the others wait for rank 0."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a process says about itself."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    host: str
    pid: int

    def __str__(self) -> str:
        """Return the place, as messages name it."""
        return f"{self.host} (pid {self.pid})"


class Roster:
    """The ranks that have met, and the store they share until they end."""

    def __init__(self, rank: Rank, store: Store, ranks: dict[str, str]) -> None:
        """Take what `placed` says of the ranks, too."""
        self._rank = rank
        self.store = store
        self.ranks = ranks

    def agree_end(self, limit_s: float = END_LIMIT_S) -> bool:
        """Say that this rank ended well, and tell whether that was heard; on rank 0, whether all said so in time.

        Over a connection of its own: one that was idle for days may be gone. Said without waiting for an answer:
        rank 0 may leave as soon as it has heard. Starts no thread: an interpreter that ends allows none.
        """
        rank = self._rank
        try:
            store = self.store if rank.is_main else _prefixed(rank, _reconnect(rank))
            store.set(f"ended/{rank.rank}", "well")
            keys = [f"ended/{number}" for number in range(rank.world_size)]
            return not rank.is_main or _wait(self.store, keys, limit_s)
        except (PeerError, RuntimeError):
            return False

    def confirm_notice(self, limit_s: float) -> list[int]:
        """Say that this rank was told to stop, and return the ranks that did not say so within `limit_s` seconds.

        Rank 0 waits for all and publishes who is missing; where it does not answer, it is the one that is missing.
        Called by the thread of the notices, over a connection of its own: the main thread may be using the store.
        """
        rank = self._rank
        try:
            store = _prefixed(rank, _reconnect(rank, limit_s))
            store.set(f"noticed/{rank.rank}", "yes")
            if rank.is_main:
                return _publish_silent(rank, store, limit_s)
            if not _wait(store, ["silent"], limit_s + SILENT_MARGIN_S):
                return [0]
            silent: list[int] = json.loads(store.get("silent"))
            store.set(f"told/{rank.rank}", "yes")
        except (PeerError, RuntimeError):
            return [0]
        return silent


def _publish_silent(rank: Rank, store: Store, limit_s: float) -> list[int]:
    """Return who is silent when the others have read it: with rank 0 goes the store."""
    silent = _silent(rank, store, limit_s)
    store.set("silent", json.dumps(silent))
    others = set(range(1, rank.world_size)) - set(silent)
    _wait(store, [f"told/{number}" for number in others], SILENT_MARGIN_S)
    return silent


def _silent(rank: Rank, store: Store, limit_s: float) -> list[int]:
    if _wait(store, [f"noticed/{number}" for number in range(rank.world_size)], limit_s):
        return []
    return [number for number in range(rank.world_size) if not store.check([f"noticed/{number}"])]


def meet(rank: Rank, limit_s: float = ARRIVAL_LIMIT_S, preflight: Preflight | None = None) -> Roster:
    """Return when all ranks, two or more, have met and agree on their numbers.

    What `preflight` brings travels with it. Raises RankError when they contradict each other, or when that finds what
    certainly breaks the job, PeerError when some do not arrive within `limit_s` seconds or the head cannot be reached.
    """
    claim = Claim(
        rank=rank.rank,
        local_rank=rank.local_rank,
        node_rank=rank.node_rank,
        world_size=rank.world_size,
        host=rank.host,
        pid=os.getpid(),
    )
    store, holds = _open(rank, limit_s)
    sequence = store.add("arrivals", 1)
    facts = preflight.facts if preflight else ""
    store.set(f"arrival/{sequence}", json.dumps({"claim": asdict(claim), "facts": facts}))
    if holds:
        claims = _judge(rank, store, sequence, limit_s, preflight)
    else:
        claims = _hear(rank, claim, store, sequence, limit_s)
    return Roster(rank, store, placed(claims))


def _open(rank: Rank, limit_s: float) -> tuple[Store, bool]:
    """Return the store, and whether this process is the one that judges."""
    judges = rank.is_main
    if rank.roster_file:
        store: Store = FileStore(str(rank.roster_file))
    elif rank.agent_store:
        store = _connect(rank, limit_s)
    elif judges:
        if not is_here(rank.master_addr):
            raise RankError(
                f"rank 0 runs on {rank.host}, but MASTER_ADDR {rank.master_addr} is another host; "
                "export MASTER_ADDR as the first host of the job"
            )
        held = _hold(rank)
        store, judges = (held, True) if held else (_connect(rank, limit_s), False)
    else:
        store = _connect(rank, limit_s)
    store = _prefixed(rank, store)
    _check_ours(rank, store, judges=judges)
    return store, judges


def _prefixed(rank: Rank, store: Store) -> Store:
    """Return our part of a store; an agent's outlives a start of the ranks."""
    return PrefixStore(f"slurmddp/{rank.restarts if rank.agent_store else 0}", store)


def _hold(rank: Rank) -> Store | None:
    """Open the store on this host; None when its port is taken."""
    limit = timedelta(seconds=ANSWER_LIMIT_S)
    try:
        return TCPStore(rank.master_addr, rank.store_port, None, is_master=True, timeout=limit, wait_for_workers=False)
    except dist.DistNetworkError:
        return None


def _connect(rank: Rank, limit_s: float) -> Store:
    """Open the head's store, as soon as something listens there.

    TCPStore itself would retry after whole seconds with a page of warnings, and wait for ever for an answer from a
    listener that is no store: hence the thread.
    """
    _await_listener(rank, limit_s)
    opened: list[Store] = []

    def work() -> None:
        with contextlib.suppress(dist.DistError):
            opened.append(_client(rank))

    opener = threading.Thread(target=work, daemon=True)
    opener.start()
    opener.join(ANSWER_LIMIT_S)
    if not opened:
        raise _foreign(rank)
    return opened[0]


def _reconnect(rank: Rank, limit_s: float = ANSWER_LIMIT_S) -> Store:
    if rank.roster_file:
        return FileStore(str(rank.roster_file))
    _await_listener(rank, limit_s)
    return _client(rank)


def _client(rank: Rank) -> Store:
    limit = timedelta(seconds=ANSWER_LIMIT_S)
    return TCPStore(rank.master_addr, rank.store_port, None, is_master=False, timeout=limit, wait_for_workers=False)


def _await_listener(rank: Rank, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            socket.create_connection((rank.master_addr, rank.store_port), timeout=2).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise _unreachable(rank, limit_s, error) from error
            time.sleep(0.05)
        else:
            return


def _unreachable(rank: Rank, limit_s: float, error: OSError) -> PeerError:
    addresses = resolve(rank.master_addr)
    name = f"the name resolves to {addresses[0]}" if addresses else "the name does not resolve"
    return PeerError(
        f"rank {rank.rank} on {rank.host} reached no rank 0 at {rank.master_addr} port {rank.store_port} within "
        f"{limit_s:g} s: {name}; {error}"
    )


def _foreign(rank: Rank) -> PeerError:
    return PeerError(
        f"port {rank.store_port} on {rank.master_addr} is taken by a program that is not rank 0 of this job"
    )


def _check_ours(rank: Rank, store: Store, *, judges: bool) -> None:
    """Refuse a store that belongs to another job: ports are drawn, and two jobs can draw the same."""
    ours = f"job {rank.job} attempt {rank.attempt}"
    if judges:
        store.set("owner", ours)
        return
    with _network(f"the store at {rank.master_addr} port {rank.store_port} went away"):
        if not _wait(store, ["owner"], ANSWER_LIMIT_S):
            raise _foreign(rank)
        theirs = store.get("owner").decode()
    if theirs != ours:
        raise PeerError(f"port {rank.store_port} on {rank.master_addr} is taken by {theirs}")


def _judge(rank: Rank, store: Store, sequence: int, limit_s: float, preflight: Preflight | None) -> list[Claim]:
    """Read the claims as they come, publish the verdict, and return them."""
    met = _Arrivals()
    claims = met.claims
    error: RankError | None = None
    deadline = time.monotonic() + limit_s
    while error is None and len(claims) < rank.world_size:
        key = f"arrival/{len(claims) + 1}"
        if not _comes(rank, store, key, deadline):
            error = _absent(rank, claims, limit_s)
        else:
            error = met.take(json.loads(store.get(key)))
    if preflight and error is None:
        error = preflight.judge(met.facts)
    verdict = {
        "error": str(error) if error else "",
        "retry": isinstance(error, PeerError),
        "roster": [asdict(claim) for claim in claims],
    }
    published = time.time()
    store.set("verdict", json.dumps(verdict))
    count = store.add("arrivals", 0) if error else rank.world_size
    others = set(range(1, count + 1)) - {sequence}
    heard = _wait(store, [f"heard/{number}" for number in others], ANSWER_LIMIT_S)
    if error:
        raise error
    if preflight and heard:
        leaders = {number: claim.rank for number, claim in enumerate(claims, 1) if claim.local_rank == 0}
        keys = {leaders[number]: f"heard/{number}" for number in leaders.keys() & others}
        preflight.hear_clocks(published, {of: float(store.get(key)) for of, key in keys.items()})
    return claims


def _comes(rank: Rank, store: Store, key: str, deadline: float) -> bool:
    """Wait until a key is set; tell whether it was before the monotonic deadline, and before srun said it never will.

    Asked again and again: a wait of TCPStore that ends without the key writes warnings.
    """
    look_at = time.monotonic() + LOOK_S
    while not store.check([key]):
        now = time.monotonic()
        if now > deadline:
            return False
        if now > look_at:
            if unstarted(rank)[0]:
                return False
            look_at = now + LOOK_S
        time.sleep(0.01)
    return True


def _absent(rank: Rank, claims: list[Claim], limit_s: float) -> PeerError:
    ranks, why = unstarted(rank)
    if ranks:
        return PeerError(f"{_named(rank, ranks)} could not be started; srun says: {why}")
    return PeerError(f"{_named(rank, _missing(rank, claims))} did not arrive within {limit_s:g} s")


def _hear(rank: Rank, claim: Claim, store: Store, sequence: int, limit_s: float) -> list[Claim]:
    """Wait for the verdict, and for one's own name in it; return all claims."""
    with _network(f"rank 0 on {rank.master_addr} left before all ranks had met"):
        if not _wait(store, ["verdict"], limit_s + ANSWER_LIMIT_S):
            raise PeerError(f"rank 0 on {rank.master_addr} gave no verdict within {limit_s + ANSWER_LIMIT_S:g} s")
        verdict = json.loads(store.get("verdict"))
        store.set(f"heard/{sequence}", repr(time.time()))
    if verdict["error"]:
        raise (PeerError if verdict["retry"] else RankError)(verdict["error"])
    roster = [Claim(**entry) for entry in verdict["roster"]]
    _check_listed(claim, roster)
    return roster


def placed(claims: Iterable[Claim]) -> dict[str, str]:
    """Return the ranks of each host as in `0-3,8`, the hosts in the order of the nodes."""
    by_host: dict[str, list[int]] = {}
    for claim in sorted(claims, key=lambda claim: (claim.node_rank, claim.rank)):
        by_host.setdefault(claim.host, []).append(claim.rank)
    return {host: _ranges(ranks) for host, ranks in by_host.items()}


def _ranges(numbers: list[int]) -> str:
    """Return rising numbers as in `0-3,8`."""
    parts = [list(part) for _, part in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    ends = [(part[0][1], part[-1][1]) for part in parts]
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ends)


def _check_listed(claim: Claim, roster: list[Claim]) -> None:
    """Find the late double of a rank, or one of another world, that rank 0 did not wait for."""
    if claim in roster:
        return
    holder = next((other for other in roster if other.rank == claim.rank), None)
    error = contradiction([*([holder] if holder else roster), claim])
    raise error or RankError(f"rank {claim.rank} on {claim} is not among the {len(roster)} ranks that met")


def _of_another_version(arrival: Any) -> RankError:
    """Return the error of an arrival that cannot be read; that of an older slurmddp is the claim alone."""
    claim = arrival.get("claim", arrival) if isinstance(arrival, dict) else None
    host = claim.get("host") if isinstance(claim, dict) else None
    return RankError(
        f"a rank{f' on {host}' if host else ''} speaks otherwise than rank 0: versions of slurmddp differ, "
        f"that of rank 0 is {__version__}; give all nodes the same environment"
    )


def contradiction(claims: Iterable[Claim]) -> RankError | None:
    """Return what is wrong with the claims, None when they fit together."""
    met = _Arrivals()
    return next(filter(None, map(met.add, claims)), None)


class _Arrivals:
    """The claims so far; each new one is held against all others at once."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.facts: list[str] = []
        self._by_rank: dict[int, Claim] = {}
        self._by_place: dict[tuple[str, int, int], Claim] = {}

    def take(self, arrival: Any) -> RankError | None:
        """Return what is wrong with an arrival, None when it can be read and fits."""
        try:
            claim, facts = Claim(**arrival["claim"]), arrival["facts"]
        except (KeyError, TypeError):
            return _of_another_version(arrival)
        self.facts.append(facts)
        return self.add(claim)

    def add(self, claim: Claim) -> RankError | None:
        """Return what is wrong with this claim beside the others, None when it fits."""
        self.claims.append(claim)
        if claim.world_size != self.claims[0].world_size:
            return RankError(f"ranks disagree on the world size: {', '.join(_sizes(self.claims))}")
        first = self._by_rank.setdefault(claim.rank, claim)
        if first is not claim:
            return RankError(f"rank {first.rank} is claimed twice: by {first} and {claim}")
        first = self._by_place.setdefault((claim.host, claim.node_rank, claim.local_rank), claim)
        if first is not claim:
            return RankError(
                f"ranks {first.rank} and {claim.rank} on {first.host} both have local rank {first.local_rank} "
                f"(pids {first.pid} and {claim.pid})"
            )
        return None


def _sizes(claims: list[Claim]) -> Iterator[str]:
    """Yield `4 on n1 (ranks 0, 1)` for each size and host."""
    groups: dict[tuple[int, str], list[int]] = {}
    for claim in claims:
        groups.setdefault((claim.world_size, claim.host), []).append(claim.rank)
    for (size, host), ranks in groups.items():
        yield f"{size} on {host} ({_ranks(ranks)})"


def _missing(rank: Rank, claims: list[Claim]) -> list[int]:
    return sorted(set(range(rank.world_size)) - {claim.rank for claim in claims})


def _named(rank: Rank, ranks: list[int]) -> str:
    """Return `ranks 2, 3 (n2), rank 5 (n3)`."""
    by_host: dict[str, list[int]] = {}
    for number in ranks:
        by_host.setdefault(rank.host_of(number), []).append(number)
    return ", ".join(_ranks(some) + (f" ({host})" if host else "") for host, some in by_host.items())


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"


def _wait(store: Store, keys: list[str], limit_s: float) -> bool:
    """Wait until all keys are set; tell whether they were in time."""
    if not keys:
        return True
    try:
        store.wait(keys, timedelta(seconds=max(limit_s, 0.001)))
    except dist.DistNetworkError:
        raise
    except RuntimeError:  # of which FileStore raises none that is narrower
        return False
    return True


@contextlib.contextmanager
def _network(what: str) -> Iterator[None]:
    try:
        yield
    except dist.DistNetworkError as error:
        raise PeerError(what) from error
