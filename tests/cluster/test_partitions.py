"""What a cluster offers, as values."""

import pytest

from slurmddp.cluster.partitions import Cluster, Nodes, Partition


def nodes(state="idle", **more):
    return Nodes(names="n1", count=1, state=state, cpus=1, memory_mb=1, **more)


USABLE = ["idle", "mixed", "allocated", "completing", "planned", "reserved", "powered_down"]
UNUSABLE = ["down", "drained", "draining", "fail", "failing", "future", "inval", "no_respond"]


@pytest.mark.parametrize("state", [*USABLE, *UNUSABLE])
def test_nodes_are_usable_when_jobs_can_get_them_now_or_later(state):
    usable = state in USABLE
    assert nodes(state).usable is usable
    partition = Partition(name="p", nodes=(nodes(state), nodes("idle")))
    assert len(partition.usable) == 1 + usable and partition.node_count == 2


def test_gpus_are_counted_by_type():
    mixed = nodes(gpus=6, gpu_counts=(("a100", 4), ("", 2)))
    assert [mixed.gpus_of(kind) for kind in ("a100", "h100", "")] == [4, 0, 6]


def test_partitions_are_found_by_the_names_of_a_request():
    cluster = Cluster(partitions=(Partition(name="a"), Partition(name="b", default=True)))
    assert [found.name for found in cluster.partitions_of("a,none,b")] == ["a", "b"]
    assert [found.name for found in cluster.partitions_of(None)] == ["b"]
    assert list(Cluster().partitions_of(None)) == []
