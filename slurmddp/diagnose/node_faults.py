"""What one attempt shows of its nodes, and a program that notes it: the supervisor starts it after an attempt.

python -m slurmddp.diagnose.node_faults CLUSTER RUN JOBID ATTEMPT
"""

import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slurmddp.diagnose.evidence import Evidence
from slurmddp.diagnose.rule_types import Diagnosis, Observation
from slurmddp.diagnose.rules import end_causes
from slurmddp.diagnose.run_evidence import READ_NODES, read_attempt_evidence
from slurmddp.diagnose.verdict import judge
from slurmddp.exit_codes import DONE, STOPPED
from slurmddp.runs import node_store
from slurmddp.runs.history import AttemptEvents, Event, read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.runs.node_evidence import HINT, PROOF, STRAGGLER, NodeEvidence
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobInfo


class AttemptFacts(NamedTuple):
    """What is known of one attempt that has ended."""

    head: NodeEvidence
    """Its time, cluster, run, job and name, for what it shows."""
    hosts: tuple[str, ...]
    events: tuple[Event, ...] = ()
    """Its own."""
    found: Diagnosis | None = None
    """Why it failed; None where it did not."""
    evidence: Evidence = Evidence()
    """What its files show of that."""
    addresses: Mapping[str, str] = {}
    """The host of each network address that is known."""

    def show(self, node: str, source: str, strength: str, what: str) -> NodeEvidence:
        """Return what the attempt shows of a node."""
        return self.head._replace(node=node, source=source, strength=strength, what=what)


def evidence_of(facts: AttemptFacts) -> tuple[NodeEvidence, ...]:
    """Return what an attempt shows of its nodes; nothing for most failures, which come from the program or its data."""
    return (*_of_stragglers(facts), *_of_checks(facts), *_of_failure(facts))


def _of_stragglers(facts: AttemptFacts) -> Iterator[NodeEvidence]:
    """Yield the last word on each slow rank; alone it may as well be the rank's own work."""
    slow = {event.count("slow_rank"): event for event in facts.events if event.kind == "straggler"}
    for rank, event in slow.items():
        took_s, others_s = event.number("backward_s") or 0.0, event.number("others_s") or 0.0
        what = f"rank {rank} was slow: its backward took {took_s * 1e3:.0f} ms, others {others_s * 1e3:.0f} ms"
        if host := event.text("slow_host"):
            yield facts.show(host, STRAGGLER, HINT, what)._replace(rank=rank, time=event.time)


def _of_checks(facts: AttemptFacts) -> Iterator[NodeEvidence]:
    """Yield the nodes on which a check before COMMAND failed that no other node failed."""
    failed = [event for event in facts.events if event.kind == "finding" and event.text("level") == "error"]
    for check in dict.fromkeys(event.text("check") for event in failed):
        of_check = [event for event in failed if event.text("check") == check]
        host, *others = {event.text("on_host") for event in of_check}
        if host and not others and {*facts.hosts} - {host}:
            strength = HINT if check == "spare" else PROOF  # Slurm may not have started its step in time
            yield facts.show(host, "preflight", strength, f"the check `{check}` failed: {of_check[0].text('what')}")


def _of_failure(facts: AttemptFacts) -> Iterator[NodeEvidence]:
    """Yield the node that the cause of the failure speaks against."""
    if (found := facts.found) is None:
        return
    same = [seen for seen in facts.evidence.observations if seen.rule.key == found.cause]
    rules = (*(seen.rule for seen in same if seen.what == found.what), *end_causes().values())
    if (rule := next((rule for rule in rules if rule.key == found.cause), None)) is None:
        return
    if rule.node == "connection":
        yield from _of_connections(facts, same, found)
        return
    others = {seen.host for seen in same} - {found.host, ""}
    if rule.node and found.host and not others:  # what several nodes have is the fault of none of them
        is_last = found.sure == "certain" or any(seen.lines_after == 0 for seen in same)
        is_certain = rule.node == "proof" and rule.sure == "certain" and is_last
        yield facts.show(found.host, found.cause, PROOF if is_certain else HINT, found.what)._replace(rank=found.rank)


def _of_connections(facts: AttemptFacts, seen: Sequence[Observation], found: Diagnosis) -> Iterator[NodeEvidence]:
    """Yield the one node that is an end of all connections that failed; of a single connection both ends, as hints."""
    named = [(one.host, one.groups.get("peer", "").partition("<")[0]) for one in seen]  # without the port
    ends = ((host, _find_peer(facts, named, address)) for host, address in named)
    failed = {frozenset(both) for both in ends if both[1] not in ("", both[0])}
    common = frozenset.intersection(*failed) if failed else frozenset[str]()
    for node in sorted(common):
        if len(common) == 1:
            yield facts.show(node, found.cause, PROOF, f"{len(failed)} connections failed, and it is an end of each")
        for peer in common - {node}:
            yield facts.show(node, found.cause, HINT, f"its connection to {peer} failed")._replace(peer=peer)


def _find_peer(facts: AttemptFacts, named: Sequence[tuple[str, str]], address: str) -> str:
    """Return the host of an address; where that is unknown, the only host of those `named` that does not name it."""
    if address in facts.hosts:
        return address
    others = {*facts.hosts} - {host for host, other in named if other == address}
    return facts.addresses.get(address) or (next(iter(others)) if address and len(others) == 1 else "")


def read_facts(run: RunDir, cluster: str, job_id: str, attempt: str) -> AttemptFacts:
    """Return what is known of an attempt; the diagnosis is made only where it failed."""
    history = read_outline(run).of_job(job_id)
    own = next((one for one in history.attempts if one.name == attempt), AttemptEvents(()))
    start, end = own.last("attempt_start"), own.last("attempt_end")
    hosts = tuple(try_expand(start.text("nodes")) or ()) if start else ()
    time_s = end.time if end else time.time()
    head = NodeEvidence(time_s, cluster, "", "", "", "", run=str(run.path), job=job_id, attempt=attempt)
    facts = AttemptFacts(head, hosts, own.events)
    if end is None or end.count("status") in (DONE, STOPPED):
        return facts
    evidence = read_attempt_evidence(run, job_id, attempt, history.supervision)
    found = judge(JobInfo(job_id), evidence)
    is_connection = any(seen.rule.node == "connection" for seen in evidence.observations)
    return facts._replace(found=found, evidence=evidence, addresses=_resolve(hosts) if is_connection else {})


def _resolve(hosts: Sequence[str]) -> dict[str, str]:
    """Return the host of each address that the names of these hosts have."""
    found: dict[str, str] = {}
    for host in hosts[:READ_NODES]:
        with suppress(OSError):
            found |= {str(entry[4][0]): host for entry in socket.getaddrinfo(host, None)}
    return found


def main(words: Sequence[str]) -> None:
    """Note what an attempt shows of its nodes, and print it."""
    cluster, folder, job_id, attempt = words
    noted = evidence_of(read_facts(RunDir(Path(folder)), cluster, job_id, attempt))
    node_store.note(noted, time.time())
    for one in noted:
        sys.stdout.write(f"slurmddp: {one.strength} against {one.node}: {one.what}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
