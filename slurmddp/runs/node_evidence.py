"""What speaks against a node, and which nodes the next start leaves out for it. Pure; standard library only.

A proof is enough by itself. Of hints it takes two that have no other explanation in common: they come from different
runs, and where a line names two nodes (a connection), the other node differs.
"""

from __future__ import annotations
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from operator import attrgetter
from typing import Any, Final, NamedTuple

from slurmddp.text import format_duration

LASTS_S: Final = 2 * 3600.0
"""What speaks against a node is forgotten when nothing was added to it for so long."""
SHARE: Final = 4
"""At most one in so many nodes of a partition is left out."""
PROOF: Final = "proof"
HINT: Final = "hint"
STRAGGLER: Final = "straggler"

_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The name of a node; it is written into batch scripts."""


class NodeEvidence(NamedTuple):
    """One thing that speaks against one node."""

    time: float
    """When it was seen, in seconds since 1970."""
    cluster: str
    node: str
    source: str
    """A cause of `diagnose`, as `gpu-broken`; `preflight` or `straggler`."""
    strength: str
    """`proof` or `hint`."""
    what: str
    run: str = ""
    """The run's folder."""
    job: str = ""
    attempt: str = ""
    rank: int | None = None
    peer: str = ""
    """The node that it may be as well; empty where there is none."""

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> NodeEvidence | None:
        """Return the evidence of a record; None for a record that is none."""
        texts = {name: record.get(name, cls._field_defaults.get(name)) for name in cls._fields}
        time, rank = texts.pop("time"), texts.pop("rank")
        is_whole = isinstance(time, float) and (rank is None or isinstance(rank, int))
        if not is_whole or not all(isinstance(text, str) for text in texts.values()):
            return None
        return cls(time=time, rank=rank, **texts) if _NODE.fullmatch(texts["node"]) else None


class Suspect(NamedTuple):
    """A node, and what speaks against it: at least one thing, the oldest first."""

    node: str
    evidence: tuple[NodeEvidence, ...]

    @property
    def is_proved(self) -> bool:
        """Whether that is enough to leave it out."""
        is_proof = any(one.strength == PROOF for one in self.evidence)
        return is_proof or any(_is_independent(*pair) for pair in combinations(self.evidence, 2))

    def describe(self, now: float) -> str:
        """Return why it is left out, in a few words."""
        last = self.evidence[-1]
        same = sum(one.source == last.source for one in self.evidence)
        return f"{last.what}{f' ({same} times)' if same > 1 else ''}, {format_duration(max(0.0, now - last.time))} ago"


def find_suspects(evidence: Iterable[NodeEvidence], now: float) -> tuple[Suspect, ...]:
    """Return the nodes against which something still speaks, those against which it was seen last first.

    What was seen long before the last of a node is forgotten, too. A rank that is slow on whichever node it runs speaks
    against no node.
    """
    ordered = sorted(evidence, key=attrgetter("time"))
    slow = {(one.run, one.rank, one.node) for one in ordered if one.source == STRAGGLER}
    nodes_of_rank = Counter((run, rank) for run, rank, _ in slow)
    by_node: dict[tuple[str, str], list[NodeEvidence]] = {}
    for one in ordered:
        if one.source != STRAGGLER or nodes_of_rank[one.run, one.rank] == 1:
            by_node.setdefault((one.cluster, one.node), []).append(one)
    suspects = [
        Suspect(node, tuple(one for one in found if one.time > found[-1].time - LASTS_S))
        for (_, node), found in by_node.items()
        if found[-1].time > now - LASTS_S
    ]
    return tuple(sorted(suspects, key=lambda suspect: (-suspect.evidence[-1].time, suspect.node)))


def _is_independent(one: NodeEvidence, other: NodeEvidence) -> bool:
    """Return whether two hints against a node have nothing but the node in common."""
    if one.peer and one.peer == other.peer:
        return False
    has_moved = one.source == other.source == STRAGGLER and one.rank != other.rank
    return one.run != other.run or (has_moved and (one.job, one.attempt) != (other.job, other.attempt))


def nodes_to_avoid(
    evidence: Iterable[NodeEvidence],
    now: float,
    partition_nodes: Collection[str],
    *,
    wanted: Collection[str] = (),
    left_out: Collection[str] = (),
    needed: int = 0,
) -> tuple[Suspect, ...]:
    """Return the nodes of a partition that the next start leaves out.

    Never those that are `wanted` by name, never more than one in SHARE with those that are `left_out` already, and
    never so many that fewer than `needed` nodes are left.
    """
    left = set(partition_nodes).difference(left_out)
    most = min(len(set(partition_nodes)) // SHARE - (len(set(partition_nodes)) - len(left)), len(left) - needed)
    proved = (suspect for suspect in find_suspects(evidence, now) if suspect.is_proved)
    return tuple(suspect for suspect in proved if suspect.node in left - set(wanted))[: max(0, most)]
