"""Rendezvous: validates the identities of all ranks through a store before `init_process_group`.

Each process gets a number on arrival and stores its claim under it. Rank 0 reads the claims as they arrive and
publishes one verdict. Then all ranks go on, or all fail with a line that names ranks and hosts: at the latest a minute
after the last arrival, or later where the ranks' own starts took long, since nodes may import torch for minutes from a
slow file system. What a rank sends and reads does not grow with the number of ranks; only rank 0, and a process too
many, read all claims.
"""

from __future__ import annotations
import json
import time
from dataclasses import asdict

import torch.distributed as dist

from slurmddp.errors import PeerError, RankError
from slurmddp.runtime.health.facts import Facts, identify
from slurmddp.runtime.health.preflight import Preflight
from slurmddp.runtime.health.rules import judge_clocks
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous import head_store
from slurmddp.runtime.rendezvous.claims import Claims, ranks_by_host
from slurmddp.runtime.rendezvous.sealed_store import SealedStore

ARRIVAL_LIMIT_S = 60.0
"""How long rank 0 waits for the next of the others, and they for it; longer where the start was slow."""
SLOWEST_START = 3
"""How many times longer than this rank's start that of another may take; they share a file system."""


def arrival_limit(began_at: float) -> float:
    """Return how many seconds to wait for another rank; `began_at` is when this one began, on the monotonic clock."""
    return max(ARRIVAL_LIMIT_S, float(round(SLOWEST_START * (time.monotonic() - began_at))))


def meet(rank: Rank, limit_s: float = ARRIVAL_LIMIT_S, preflight: Preflight | None = None) -> head_store.Rendezvous:
    """Return when all ranks, two or more, have met and their claims fit together.

    The facts of `preflight` travel with the claims. Raises RankError when the claims contradict each other, or the
    preflight finds what certainly breaks the job; PeerError when some ranks do not arrive within `limit_s` seconds, or
    the head cannot be reached.
    """
    claim = preflight.facts if preflight else identify(rank)
    store, judges = head_store.open_store(rank, limit_s)
    sequence = store.add("arrivals", 1)
    store.set(f"arrival/{sequence}", json.dumps(asdict(claim)))
    arrived = []
    if judges:
        arrived = _judge(rank, store, sequence, limit_s, preflight)
    else:
        _await_verdict(rank, claim, store, sequence, limit_s)
    head_store.await_program_stores(rank)
    return head_store.Rendezvous(rank, store, ranks_by_host(arrived))


def _judge(rank: Rank, store: SealedStore, sequence: int, limit_s: float, preflight: Preflight | None) -> list[Facts]:
    """As rank 0: collect the claims, publish the verdict, and return the claims."""
    store.set("owner", "this job")
    claims = Claims()
    error = _collect(rank, store, claims, limit_s)
    if preflight and error is None:
        error = preflight.judge(claims.arrived)
    published_at = time.time()
    verdict = {
        "error": str(error) if error else "",
        "retry": isinstance(error, PeerError),
        "arrivals": len(claims.arrived),
    }
    store.set("verdict", json.dumps(verdict))
    count = store.add("arrivals", 0) if error else rank.world_size
    heard_keys = {number: f"heard/{number}" for number in range(1, count + 1) if number != sequence}
    all_heard = head_store.wait_for_keys(store, [*heard_keys.values()], head_store.ANSWER_LIMIT_S)
    if error:
        raise error
    if preflight and all_heard:
        heard = ((claim, heard_keys.get(number)) for number, claim in enumerate(claims.arrived, 1))
        times = [(claim.host, float(store.get(key))) for claim, key in heard if key and claim.is_leader]
        preflight.report(judge_clocks(published_at, time.time(), times))
    return claims.arrived


def _collect(rank: Rank, store: SealedStore, claims: Claims, limit_s: float) -> RankError | None:
    """Read the claims of all ranks as they arrive; return the first error.

    Polls, because TCPStore writes warnings when a wait ends without the key.
    """
    heard_at = time.monotonic()
    while len(claims.arrived) < rank.world_size:
        first = len(claims.arrived) + 1
        if not store.check([f"arrival/{first}"]):
            if time.monotonic() > heard_at + limit_s:
                missing = sorted(set(range(rank.world_size)) - {claim.rank for claim in claims.arrived})
                return PeerError(f"{rank.list_ranks(missing)} did not arrive within {limit_s:g} s")
            time.sleep(0.01)
            continue
        # All that have arrived, or the first alone while one of them is not set. A request for many is as quick as one,
        # which takes long while hundreds of ranks start on a node.
        arrivals = min(store.add("arrivals", 0), rank.world_size)
        keys = [f"arrival/{number}" for number in range(first, arrivals + 1)]
        for claim in store.multi_get(keys if store.check(keys) else keys[:1]):
            if error := claims.read(json.loads(claim)):
                return error
        heard_at = time.monotonic()
    return None


def _await_verdict(rank: Rank, claim: Facts, store: SealedStore, sequence: int, limit_s: float) -> None:
    """As another rank than 0: wait for the verdict, and check that it accepts this claim."""
    limit_s += head_store.ANSWER_LIMIT_S
    try:
        if not head_store.wait_for_keys(store, ["owner"], head_store.ANSWER_LIMIT_S):  # that of another job has others
            raise head_store.foreign_program(rank)
        arrived = store.add("arrivals", 0)
        while not head_store.wait_for_keys(store, ["verdict"], limit_s):
            if arrived == (arrived := store.add("arrivals", 0)):
                raise PeerError(f"rank 0 on {rank.master_addr} gave no verdict within {limit_s:g} s")
        verdict = json.loads(store.get("verdict"))
        store.set(f"heard/{sequence}", repr(time.time()))
    except dist.DistNetworkError as error:
        raise PeerError(f"rank 0 on {rank.master_addr} left before all ranks had met") from error
    if verdict["error"]:
        raise (PeerError if verdict["retry"] else RankError)(verdict["error"])
    if sequence > verdict["arrivals"]:  # each rank has come before
        claims = Claims()
        for accepted in store.multi_get([f"arrival/{number}" for number in range(1, verdict["arrivals"] + 1)]):
            claims.read(json.loads(accepted))
        if refusal := claims.add(claim):
            raise refusal
