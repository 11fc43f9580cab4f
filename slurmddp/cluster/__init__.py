"""The cluster: what it offers, what a job gets of it, what it can never give, and why a job waits there."""

from slurmddp.cluster.partitions import Cluster, Nodes, Partition, Preemption, Qos

__all__ = ["Cluster", "Nodes", "Partition", "Preemption", "Qos"]
