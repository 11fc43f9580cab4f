"""What a request leaves open is filled from the partition, with its reason; what was given stays."""

import pytest
from msgspec.structs import replace

from slurmddp.cluster.defaults import fill_open_values
from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config.resolve import resolve
from slurmddp.slurm.values import parse_duration, slurm_time

BIG = Nodes(names="b[1-4]", count=4, state="idle", cpus=40, memory_mb=400_000, gpus=8, gpu_counts=(("a100", 8),))
SMALL = Nodes(names="s1", count=1, state="mixed", cpus=40, memory_mb=100_000, gpus=2, features=("old",))
PLAIN = Nodes(names="p[1-2]", count=2, state="idle", cpus=64, memory_mb=200_000)
BROKEN = Nodes(names="b9", count=1, state="down", cpus=2, memory_mb=1000)
CLUSTER = Cluster(
    memory_is_counted=True,
    partitions=(
        Partition(name="big", default=True, nodes=(BIG, BROKEN), max_time_s=86400),
        Partition(name="small", nodes=(SMALL,), default_time_s=360, max_time_s=7200),
        Partition(name="plain", nodes=(PLAIN,), max_cpus_per_node=32),
        Partition(name="mixed", nodes=(BIG, SMALL), default_memory="DefMemPerCPU=2000"),
        Partition(name="two-kinds", nodes=(BIG, SMALL)),
        Partition(name="mostly", nodes=(BIG, PLAIN)),
        Partition(name="away", nodes=(replace(BIG, state="drained"),)),
        Partition(name="parts", nodes=(replace(BIG, gpus=20, gpu_counts=(("a100", 2), ("1g.10gb", 18))),)),
        Partition(name="empty"),
        Partition(name="whole", nodes=(BIG,), whole_nodes=True),
    ),
)


def size(cluster=CLUSTER, **options):
    return fill_open_values(resolve(options=options, words=(), job_file=None, environ={}), cluster)


@pytest.mark.parametrize(
    ("options", "gpus", "cpus"),
    [
        ({}, "8", 5),
        ({"partition": "small"}, "2", 20),
        ({"partition": "small", "gpus_per_node": "1"}, "1", 20),
        ({"gpus_per_node": "2"}, "2", 5),
        ({"gpus_per_node": "a100:2", "ntasks_per_node": "1"}, "a100:2", 10),
        ({"gpus_per_node": "2", "sbatch": ("exclusive",)}, "2", 20),
        ({"gpus_per_node": "2", "sbatch": ("exclusive=user",)}, "2", 5),
        ({"gpus_per_node": "2", "partition": "whole"}, "2", 20),
        ({"ntasks_per_node": "4"}, None, 10),
        ({"cpus_per_task": "3"}, "8", 3),
        ({"sbatch": ("cpus-per-gpu=2",)}, "8", None),
        ({"sbatch": ("hint=nomultithread",)}, "8", None),
        ({"partition": "plain"}, None, 32),
        ({"partition": "mixed"}, "2", 5),
        ({"partition": "mixed", "constraint": "old"}, "2", 20),
        ({"partition": "mixed", "nodelist": "b[2-3]"}, "8", 5),
        ({"partition": "mixed", "gpus_per_node": "4"}, "4", 5),
        ({"partition": "mixed", "exclude": "s1"}, "8", 5),
        ({"partition": "mixed", "nodelist": "./hosts"}, "2", 5),
        ({"partition": "mixed", "constraint": "old&x"}, None, None),
        ({"partition": "mostly", "ntasks_per_node": "2"}, None, 20),
        ({"partition": "mostly"}, "8", 5),
        ({"partition": "away"}, "8", 5),
        ({"partition": "parts"}, None, 40),
        ({"partition": "small,big"}, "2", 20),
        ({"partition": "empty"}, None, None),
        ({"partition": "elsewhere"}, None, None),
        ({"ntasks_per_node": "41"}, None, None),
    ],
)
def test_gpus_and_cpus_are_those_of_the_partitions_nodes(options, gpus, cpus):
    spec = size(**options).spec
    assert (spec.gpus_per_node, spec.cpus_per_task) == (gpus, cpus)


@pytest.mark.parametrize(
    ("options", "time", "lead_s"),
    [({}, None, 120), ({"partition": "small"}, "00:06:00", 90), ({"time": "4"}, "4", 60)],
)
def test_a_limit_so_short_that_the_notice_depends_on_it_is_said(options, time, lead_s):
    spec = size(**options).spec
    assert (spec.time, spec.lead_s) == (time, lead_s)


@pytest.mark.parametrize(
    ("options", "mem"),
    [
        ({}, "0"),
        ({"gpus_per_node": "2"}, "100000"),
        ({"mem": "3G"}, "3G"),
        ({"sbatch": ("mem-per-cpu=1G",)}, None),
        ({"partition": "mixed"}, None),
        ({"partition": "plain"}, None),
        ({"partition": "two-kinds"}, "100000"),
    ],
)
def test_memory_goes_with_the_gpus_unless_the_site_has_a_default(options, mem):
    assert size(**options).spec.mem == mem


def test_where_memory_is_not_counted_none_is_asked_for():
    assert size(Cluster(partitions=CLUSTER.partitions)).spec.mem is None


def test_each_computed_value_says_why():
    origins = size(gpus_per_node="2").origins
    assert origins["cpus_per_task"] == "partition big: 40 CPUs a node, for 2 of its 8 GPUs 10 / 2 ranks"
    assert origins["mem"] == "partition big: 400000 MB a node, for 2 of its 8 GPUs"
    assert size().origins["gpus_per_node"] == "all GPUs of a node in partition big"


@pytest.mark.parametrize("limit_s", [1, 59, 3600, 86399, 86400, 10 * 86400 + 1])
def test_a_time_is_read_as_it_was_written(limit_s):
    assert parse_duration(slurm_time(limit_s)) == limit_s
