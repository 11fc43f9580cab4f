"""Rendezvous: validates the identities of all ranks through a store before `init_process_group`.

Each process gets a number on arrival and stores its claim under it. Rank 0 reads the claims as they arrive and
publishes one verdict. Then all ranks go on, or all fail with a line that names ranks and hosts: at the latest a minute
after the last arrival, or later where the ranks' own starts took long, since nodes may import torch for minutes from a
slow file system. What a rank sends and reads does not grow with the number of ranks; only rank 0, and a process too
many, read all claims.
"""

import json
import os
import time
from dataclasses import asdict

from torch._C._distributed_c10d import Store

from slurmddp.errors import PeerError, RankError
from slurmddp.runtime.health.preflight import Preflight
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous import head_store
from slurmddp.runtime.rendezvous.claims import Claim, Claims, ranks_by_host, refusal_of
from slurmddp.runtime.rendezvous.head_store import lost_connection_as, open_store, reconnect, wait_for_keys
from slurmddp.runtime.rendezvous.program_store import announce_program_stores
from slurmddp.runtime.rendezvous.srun_failures import find_unstarted_ranks

ARRIVAL_LIMIT_S = 60.0
"""How long rank 0 waits for the next of the others, and they for it; longer where the start was slow."""
SLOWEST_START = 3
"""How many times longer than this rank's start that of another may take; they share a file system."""
SRUN_CHECK_S = 2.0
"""How often it checks meanwhile whether srun has reported a rank that it could not start."""
END_LIMIT_S = 60.0
"""How long rank 0, which holds the store, waits for the others when it has ended."""
MARGIN_S = 1.0
"""The other ranks wait for rank 0 this much longer than rank 0 waits for them."""


def arrival_limit(began_at: float) -> float:
    """Return how many seconds to wait for another rank; `began_at` is when this one began, on the monotonic clock."""
    return max(ARRIVAL_LIMIT_S, float(round(SLOWEST_START * (time.monotonic() - began_at))))


class Rendezvous:
    """The ranks that have met, and the store that they share until they end."""

    def __init__(self, rank: Rank, store: Store, ranks: dict[str, str]) -> None:
        self._rank, self._store = rank, store
        self.ranks_by_host = ranks
        """As `claims.ranks_by_host` returns them; known to rank 0 alone."""

    def confirm_end(self, limit_s: float = END_LIMIT_S) -> bool:
        """Report that this rank ended well; return whether that arrived, on rank 0 whether all reported it in time.

        The others do not wait for an answer, because rank 0 may leave as soon as it has all reports. Starts no thread:
        an interpreter that ends allows none.
        """
        rank = self._rank
        try:
            # Kept until the process ends: a file store that is dropped writes its file once more, which rank 0 may have
            # removed by then.
            self._end_store = self._store if rank.is_main else reconnect(rank)
            self._end_store.set(f"ended/{rank.rank}", "well")
            keys = [f"ended/{number}" for number in range(rank.world_size)]
            return not rank.is_main or wait_for_keys(self._store, keys, limit_s)
        except (PeerError, RuntimeError):
            return False

    def confirm_stop(self, limit_s: float) -> list[int]:
        """Report that this rank was asked to stop; return the ranks that did not report it within `limit_s` seconds.

        Rank 0 waits for all reports and publishes which are missing; if rank 0 does not answer, it is the missing one.
        Called by the signal thread, over a connection of its own, because the main thread may be using the store.
        """
        rank = self._rank
        try:
            store = reconnect(rank, limit_s)
            store.set(f"noticed/{rank.rank}", "yes")
            if rank.is_main:
                return _publish_silent_ranks(rank, store, limit_s)
            if not wait_for_keys(store, ["silent"], limit_s + MARGIN_S):
                return [0]
            silent: list[int] = json.loads(store.get("silent"))
            store.set(f"told/{rank.rank}", "yes")
        except (PeerError, RuntimeError):
            return [0]
        return silent


def meet(rank: Rank, limit_s: float = ARRIVAL_LIMIT_S, preflight: Preflight | None = None) -> Rendezvous:
    """Return when all ranks, two or more, have met and their claims fit together.

    The facts of `preflight` travel with the claims. Raises RankError when the claims contradict each other, or the
    preflight finds what certainly breaks the job; PeerError when some ranks do not arrive within `limit_s` seconds, or
    the head cannot be reached.
    """
    claim = Claim(
        rank=rank.rank,
        local_rank=rank.local_rank,
        node_rank=rank.node_rank,
        world_size=rank.world_size,
        host=rank.host,
        pid=os.getpid(),
    )
    store, judges = open_store(rank, limit_s)
    sequence = store.add("arrivals", 1)
    facts = preflight.facts if preflight else ""
    store.set(f"arrival/{sequence}", json.dumps({"claim": asdict(claim), "facts": facts}))
    ranks = {}
    if judges:
        ranks = ranks_by_host(_judge(rank, store, sequence, limit_s, preflight))
    else:
        _await_verdict(rank, claim, store, sequence, limit_s)
    announce_program_stores(rank, store)
    return Rendezvous(rank, store, ranks)


def _judge(rank: Rank, store: Store, sequence: int, limit_s: float, preflight: Preflight | None) -> list[Claim]:
    """As rank 0: collect the claims, publish the verdict, and return the claims."""
    claims = Claims()
    error = _collect(rank, store, claims, limit_s)
    if preflight and error is None:
        error = preflight.judge(claims.facts)
    published_at = time.time()
    _publish(store, claims.arrived, error)
    count = store.add("arrivals", 0) if error else rank.world_size
    heard_keys = {number: f"heard/{number}" for number in range(1, count + 1) if number != sequence}
    all_heard = wait_for_keys(store, [*heard_keys.values()], head_store.ANSWER_LIMIT_S)
    if error:
        raise error
    if preflight and all_heard:
        leaders = {claim.rank: number for number, claim in enumerate(claims.arrived, 1) if claim.local_rank == 0}
        times = {of: float(store.get(heard_keys[number])) for of, number in leaders.items() if number in heard_keys}
        preflight.compare_clocks(published_at, times)
    return claims.arrived


def _collect(rank: Rank, store: Store, claims: Claims, limit_s: float) -> RankError | None:
    """Read the claims of all ranks as they arrive; return the first error."""
    deadline = time.monotonic() + limit_s
    while len(claims.arrived) < rank.world_size:
        first = len(claims.arrived) + 1
        if not _await_arrival(rank, store, f"arrival/{first}", deadline):
            return _missing_ranks(rank, claims.arrived, limit_s)
        for claim in _read_arrivals(store, first, rank.world_size):
            if error := claims.read(json.loads(claim)):
                return error
        deadline = time.monotonic() + limit_s
    return None


def _read_arrivals(store: Store, first: int, last: int) -> list[bytes]:
    """Return the claims between two numbers: all that have arrived, or the first alone while one of them is not set.

    A request for many is as quick as one, which takes long while hundreds of ranks start on a node.
    """
    keys = [f"arrival/{number}" for number in range(first, min(store.add("arrivals", 0), last) + 1)]
    return store.multi_get(keys if store.check(keys) else keys[:1])


def _publish(store: Store, claims: list[Claim], error: RankError | None) -> None:
    store.set("accepted", json.dumps([asdict(claim) for claim in claims]))
    verdict = {
        "error": str(error) if error else "",
        "retry": isinstance(error, PeerError),
        "arrivals": len(claims),
    }
    store.set("verdict", json.dumps(verdict))


def _await_arrival(rank: Rank, store: Store, key: str, deadline: float) -> bool:
    """Wait until a key is set; return False at the monotonic deadline, or when srun could not start a rank.

    Polls, because TCPStore writes warnings when a wait ends without the key.
    """
    check_at = time.monotonic() + SRUN_CHECK_S
    while not store.check([key]):
        now = time.monotonic()
        if now > deadline:
            return False
        if now > check_at:
            if find_unstarted_ranks(rank)[0]:
                return False
            check_at = now + SRUN_CHECK_S
        time.sleep(0.01)
    return True


def _missing_ranks(rank: Rank, claims: list[Claim], limit_s: float) -> PeerError:
    unstarted, reason = find_unstarted_ranks(rank)
    if unstarted:
        return PeerError(f"{rank.list_ranks(unstarted)} could not be started; srun says: {reason}")
    missing = sorted(set(range(rank.world_size)) - {claim.rank for claim in claims})
    return PeerError(f"{rank.list_ranks(missing)} did not arrive within {limit_s:g} s")


def _await_verdict(rank: Rank, claim: Claim, store: Store, sequence: int, limit_s: float) -> None:
    """As another rank than 0: wait for the verdict, and check that it accepts this claim."""
    limit_s += head_store.ANSWER_LIMIT_S
    with lost_connection_as(f"rank 0 on {rank.master_addr} left before all ranks had met"):
        arrived = store.add("arrivals", 0)
        while not wait_for_keys(store, ["verdict"], limit_s):
            if arrived == (arrived := store.add("arrivals", 0)):
                raise PeerError(f"rank 0 on {rank.master_addr} gave no verdict within {limit_s:g} s")
        verdict = json.loads(store.get("verdict"))
        store.set(f"heard/{sequence}", repr(time.time()))
    if verdict["error"]:
        raise (PeerError if verdict["retry"] else RankError)(verdict["error"])
    if sequence > verdict["arrivals"]:
        raise refusal_of(claim, [Claim(**entry) for entry in json.loads(store.get("accepted"))])


def _publish_silent_ranks(rank: Rank, store: Store, limit_s: float) -> list[int]:
    """As rank 0: publish the ranks that did not report in time; return them when the others have read it."""
    reports = {number: f"noticed/{number}" for number in range(rank.world_size)}
    in_time = wait_for_keys(store, [*reports.values()], limit_s)
    silent = [] if in_time else [number for number, key in reports.items() if not store.check([key])]
    store.set("silent", json.dumps(silent))
    readers = [f"told/{number}" for number in range(1, rank.world_size) if number not in silent]
    wait_for_keys(store, readers, MARGIN_S)
    return silent
