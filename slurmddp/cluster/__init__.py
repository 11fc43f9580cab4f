"""The cluster: its partitions and limits, the values that a job takes from it, and a job file to begin with."""

from slurmddp.cluster.partitions import Cluster, Nodes, Partition, Preemption, Qos

__all__ = ["Cluster", "Nodes", "Partition", "Preemption", "Qos"]
