"""What can never run is said in a line that names the limit and what would work."""

import pytest
from msgspec.structs import replace

from slurmddp.cluster.limits import find_problems, waits_for_nodes
from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config.job_spec import JobSpec

GPU = Nodes(
    names="g[1-2]", count=2, state="idle", cpus=16, memory_mb=16000, gpus=8, gpu_counts=(("a100", 8),), features=("x",)
)
FAT = Nodes(names="f1", count=1, state="down*", cpus=64, memory_mb=64000)
CLUSTER = Cluster(
    partitions=(
        Partition(name="gpu", default=True, nodes=(GPU,), max_time_s=3600, accounts=("physics",), denied_qos=("low",)),
        Partition(name="all", nodes=(GPU, FAT), max_nodes=2, min_nodes=1, max_memory_per_node_mb=32000),
        Partition(name="cpu", nodes=(FAT,), max_cpus_per_node=32, min_nodes=2, qos=("long",)),
        Partition(name="down", nodes=(GPU,), state="DOWN"),
        Partition(name="closed", nodes=(GPU,), state="DRAIN"),
        Partition(name="secrets", nodes=(GPU,), hidden=True),
    ),
)


def found(cluster=CLUSTER, **values):
    return find_problems(JobSpec(job_name="x", **values), cluster)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"gpus_per_node": "8", "nodes": 2, "cpus_per_task": 2, "mem": "15G", "time": "60"},
        {"gpus_per_node": "a100:8", "account": "physics"},
        {"partition": "all", "cpus_per_task": 64},
        {"partition": "gpu,all", "cpus_per_task": 64},
        {"partition": "all", "constraint": "x|y", "nodes": 2},
        {"nodes": 1, "spares": 1},
        {"mem": "0"},
        {"partition": "down"},
        {"time": "2:00:00", "qos": "night"},
    ],
)
def test_what_fits_is_no_problem(values):
    assert found(**values) == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"partition": "gpus"}, "--partition: 'gpus' does not exist; did you mean 'gpu' or 'cpu'?"),
        ({"partition": "secret"}, "--partition: 'secret' does not exist; there are gpu, all, cpu, down, closed"),
        ({"partition": "zzz"}, "--partition: 'zzz' does not exist; there are gpu, all, cpu, down, closed"),
        ({"partition": "closed"}, "partition closed is DRAIN and takes no jobs; choose another one by --partition"),
        ({"time": "2:00:00"}, "--time 2:00:00: partition gpu allows at most 01:00:00"),
        ({"time": "UNLIMITED"}, "--time UNLIMITED: partition gpu allows at most 01:00:00"),
        ({"nodes": 3}, "--nodes 3: partition gpu has 2"),
        ({"nodes": 2, "spares": 1}, "--nodes 2 with --spares 1: partition gpu has 2"),
        (
            {"nodes": 1, "spares": 2, "partition": "all"},
            "--nodes 1 with --spares 2: partition all allows at most 2 for a job",
        ),
        (
            {"nodes": 1, "spares": 1, "partition": "all", "cpus_per_task": 64},
            "--nodes 1 with --spares 1: 1 nodes of partition all have everything that is asked for (64 CPUs)",
        ),
        ({"nodes": 3, "partition": "all"}, "--nodes 3: partition all allows at most 2 for a job"),
        ({"partition": "cpu"}, "--nodes 1: partition cpu needs at least 2 for a job"),
        ({"partition": "cpu", "nodes": 2, "qos": "short"}, "--nodes 2: partition cpu has 1"),
        ({"partition": "gpu,cpu", "nodes": 3}, "--nodes 3: partition gpu has 2"),
        ({"gpus_per_node": "9"}, "--gpus-per-node 9: a node of partition gpu has 8"),
        ({"gpus_per_node": "h100:1"}, "--gpus-per-node h100:1: partition gpu has GPUs of type a100"),
        (
            {"mem": "30000", "partition": "all", "constraint": "x"},
            "have everything that is asked for (1 CPU, memory 30000, feature x)",
        ),
        (
            {"gpus_per_node": "8", "cpus_per_task": 3},
            "need 24 CPUs on a node, and a job gets 16 in partition gpu; at most --cpus-per-task 2",
        ),
        (
            {"ntasks_per_node": 17},
            "--ntasks-per-node 17: a job gets 16 CPUs on a node of partition gpu, and each rank needs one",
        ),
        ({"mem": "16001"}, "--mem 16001: a job gets 16000 MB on a node of partition gpu; at most --mem 16000"),
        ({"mem": "40G", "partition": "all"}, "--mem 40G: a job gets 32000 MB on a node of partition all"),
        (
            {"partition": "all", "gpus_per_node": "8", "cpus_per_task": 8, "nodes": 1},
            "--nodes 1: 0 nodes of partition all have everything that is asked for (64 CPUs, GPUs 8)",
        ),
        (
            {"constraint": "y"},
            "--constraint y: no node of partition gpu has this feature; they have: x",
        ),
        ({"qos": "low"}, "--qos low: partition gpu does not take it"),
    ],
)
def test_what_never_fits_names_the_limit(values, said):
    assert said in found(**values)[0]


def test_where_no_node_has_a_gpu_the_option_for_ranks_without_is_named():
    said = "--gpus-per-node 4: partition cpu has none; for ranks without GPUs, type: --ntasks-per-node 4"
    assert said in found(partition="cpu", gpus_per_node="4")


def test_gpus_whose_type_slurm_does_not_know_are_told():
    nodes = replace(GPU, gpus=2, gpu_counts=(("", 2),))
    untyped = Cluster(partitions=(Partition(name="gpu", default=True, nodes=(nodes,)),))
    said = "--gpus-per-node a100:2: a node of partition gpu has 2, whose type Slurm does not know; leave the type out"
    assert found(untyped, gpus_per_node="a100:2") == (said,)


def test_all_that_is_wrong_is_said():
    assert [line.split()[0] for line in found(nodes=3, time="2:00:00")] == ["--nodes", "--time"]


def test_without_a_default_partition_one_is_to_be_named_and_without_any_nothing_is_known():
    assert found(Cluster()) == ()
    cluster = Cluster(partitions=(Partition(name="a"), Partition(name="b\x1b[2J")))
    assert found(cluster) == ("this cluster has no default partition; name one by --partition: a, b\\x1b[2J",)


def test_of_nodes_that_a_site_does_not_show_only_the_number_is_known():
    cluster = Cluster(partitions=(Partition(name="private", default=True, unseen=4, max_time_s=3600),))
    assert found(cluster, nodes=4, gpus_per_node="8", cpus_per_task=99, mem="1T") == ()
    assert found(cluster, nodes=5) == ("--nodes 5: partition private has 4",)
    assert found(cluster, time="120") == ("--time 120: partition private allows at most 01:00:00",)


def test_where_the_site_chooses_the_partition_only_slurm_can_judge():
    cluster = Cluster(chooses_partitions=True, partitions=CLUSTER.partitions)
    assert found(cluster, nodes=3) == ()
    assert found(cluster, nodes=3, partition="gpu") == ("--nodes 3: partition gpu has 2",)


def test_a_job_waits_for_nodes_that_are_down():
    away = Partition(name="away", default=True, nodes=(GPU, replace(GPU, state="drained")))
    cluster = Cluster(partitions=(away,))
    wanted = [waits_for_nodes(JobSpec(job_name="x", nodes=nodes), cluster) for nodes in (2, 3, 4, 5)]
    assert wanted == [False, True, True, False]
    assert waits_for_nodes(JobSpec(job_name="x", nodes=2, spares=1), cluster)
