"""What preemption does to the jobs of a partition, from what scontrol shows of all of them. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from slurmddp.cluster.partitions import Preemption
from slurmddp.errors import UsageError
from slurmddp.slurm.hostlist import expand
from slurmddp.slurm.values import NOTHING, Record, number

_WAYS: Final[tuple[tuple[str, Preemption], ...]] = (
    ("CANCEL", "cancel"),
    ("REQUEUE", "requeue"),
    ("SUSPEND", "suspend"),
)
_TURNS: Final = r"FORCE(?!:1$).*"
"""Values of OverSubscribe with which jobs share nodes whether they like it or not (slurm.conf(5))."""


def kind(config: Record) -> str:
    """Return by what jobs are preempted: `partition_prio`, `qos`, or neither."""
    return config.get("PreemptType", "").strip().rpartition("/")[2]


def sends_user_signal(config: Record) -> bool:
    """Tell whether a preempted job gets its `--signal` in the place of SIGTERM.

    PreemptParameters=send_user_signal; up to 22.05 it is SlurmctldParameters=preempt_send_user_signal.
    """
    return any("send_user_signal" in config.get(key, "") for key in ("PreemptParameters", "SlurmctldParameters"))


def effect(partition: Record, config: Record, *, outranked: bool) -> Preemption:
    """Return what happens to a preempted job; `outranked` tells whether another partition comes first.

    The partition's own mode before the cluster's. A QOS may have one of its own, too, which no partition shows.
    """
    common = config.get("PreemptMode", "OFF")
    if kind(config) == "qos" or (kind(config) == "partition_prio" and outranked):
        own = "" if kind(config) == "qos" else partition.get("PreemptMode", "")
        if way := mode(own or common):
            return way
    shared = partition.get("OverSubscribe", partition.get("Shared", ""))
    return "gang" if "GANG" in common.upper() and re.fullmatch(_TURNS, shared) else "off"


def mode(text: str) -> Preemption | None:
    """Return what a PreemptMode does to the job that is preempted; None where it does nothing."""
    modes = text.upper().split(",")
    return next((way for word, way in _WAYS if word in modes), None)


class Ranks:
    """Which partitions' jobs can take the nodes of which others': a higher tier, and nodes in common."""

    def __init__(self, partitions: Sequence[Record]) -> None:
        self._partitions = partitions
        self._nodes: dict[str, frozenset[str] | None] = {}

    def outranked(self, partition: Record) -> bool:
        """Tell whether the jobs of some other partition come before those of this one."""
        return any(_tier(other) > _tier(partition) and self._share(other, partition) for other in self._partitions)

    def _share(self, one: Record, other: Record) -> bool:
        left, right = self._expanded(one.get("Nodes", "")), self._expanded(other.get("Nodes", ""))
        return left is None or right is None or not left.isdisjoint(right)

    def _expanded(self, nodes: str) -> frozenset[str] | None:
        """Return the names; None where they cannot be read, which may be any."""
        if nodes not in self._nodes:
            try:
                self._nodes[nodes] = frozenset(() if nodes in NOTHING else expand(nodes))
            except UsageError:
                self._nodes[nodes] = None
        return self._nodes[nodes]


def _tier(partition: Record) -> int:
    return number(partition.get("PriorityTier", partition.get("Priority", ""))) or 0
