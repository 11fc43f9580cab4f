"""Finds how the jobs of a partition are preempted, from the output of scontrol. Pure."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from slurmddp.cluster.partitions import Preemption
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.values import NO_VALUE, Record, parse_number

_MODES: Final[tuple[tuple[str, Preemption], ...]] = (
    ("CANCEL", "cancel"),
    ("REQUEUE", "requeue"),
    ("SUSPEND", "suspend"),
)
_FORCED_SHARING: Final = r"FORCE(?!:1$).*"
"""Values of OverSubscribe with which all jobs share nodes (slurm.conf(5))."""


def preemption_type(config: Record) -> str:
    """Return the plugin that decides which jobs are preempted: `partition_prio`, `qos`, or another."""
    return config.get("PreemptType", "").strip().rpartition("/")[2]


def sends_user_signal(config: Record) -> bool:
    """Return whether a preempted job gets its `--signal` instead of SIGTERM.

    PreemptParameters=send_user_signal; up to 22.05 it is SlurmctldParameters=preempt_send_user_signal.
    """
    return any("send_user_signal" in config.get(key, "") for key in ("PreemptParameters", "SlurmctldParameters"))


def find_preemption(partition: Record, config: Record, *, outranked: bool) -> Preemption:
    """Return what happens to a preempted job; `outranked` is whether a partition of a higher tier shares its nodes.

    The partition's mode beats the cluster's. A QOS may also have a mode, which no partition shows.
    """
    common = config.get("PreemptMode", "OFF")
    if preemption_type(config) == "qos" or (preemption_type(config) == "partition_prio" and outranked):
        own = "" if preemption_type(config) == "qos" else partition.get("PreemptMode", "")
        if way := parse_mode(own or common):
            return way
    shared = partition.get("OverSubscribe", partition.get("Shared", ""))
    return "gang" if "GANG" in common.upper() and re.fullmatch(_FORCED_SHARING, shared) else "off"


def parse_mode(text: str) -> Preemption | None:
    """Return what a PreemptMode does to a preempted job; None when it does nothing."""
    modes = text.upper().split(",")
    return next((way for word, way in _MODES if word in modes), None)


def is_outranked(partition: Record, partitions: Sequence[Record]) -> bool:
    """Return whether another partition, of a higher tier, can preempt the jobs of this one on their common nodes."""
    own = _node_names(partition.get("Nodes", ""))
    above = (other for other in partitions if _tier(other) > _tier(partition))
    names = (_node_names(other.get("Nodes", "")) for other in above)
    return any(own is None or other is None or not own.isdisjoint(other) for other in names)


@cache
def _node_names(nodes: str) -> frozenset[str] | None:
    """Return the names in a host list; None, which stands for any node, when it cannot be read."""
    names = () if nodes in NO_VALUE else try_expand(nodes)
    return None if names is None else frozenset(names)


def _tier(partition: Record) -> int:
    return parse_number(partition.get("PriorityTier", partition.get("Priority", ""))) or 0
