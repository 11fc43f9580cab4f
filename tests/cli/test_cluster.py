"""`slurmddp cluster`: the table for people, and JSON."""

import json
import os
import re
import subprocess

import pytest
from command_line import typed
from msgspec.structs import replace

from slurmddp.cli.cluster import format_cluster
from slurmddp.cluster.inspect import query_cluster
from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.text import format_duration


def nodes(count=1, state="idle", gpus=8, kind="", cpus=64, memory_mb=512000):
    counts = ((kind, gpus),) if gpus else ()
    return Nodes(
        names="n", count=count, state=state, cpus=cpus, memory_mb=memory_mb, gpus=gpus, gpu_type=kind, gpu_counts=counts
    )


def text(*partitions, **more):
    lines = format_cluster(Cluster(name="big", version="24.05.1", partitions=partitions, **more))
    return "\n".join(lines)


def test_a_row_shows_what_a_partition_has():
    shown = text(
        Partition(
            name="gpu",
            default=True,
            nodes=(nodes(3), nodes(2, "mixed"), nodes(1, "allocated"), nodes(4, "drained")),
            max_time_s=36 * 3600,
            preemption="requeue",
            grace_s=90,
        )
    )
    assert shown.splitlines()[:4] == [
        "big, Slurm 24.05.1",
        "",
        "PARTITION  NODES  IDLE  MIX  ALLOC  DOWN  CPUS   MEM   TIME  GPUS",
        "gpu*          10     3    2      1     4    64  500G  1d12h  8",
    ]
    assert (
        "gpu: jobs are preempted (requeue, after 1m30s)" in shown
        and "requeue, the job goes back into the queue" in shown
    )
    notice = "First the job gets SIGTERM (not the signal of --signal-lead), and has the time shown, or 30 s, to save a"
    assert f"{notice} checkpoint." in shown.replace("\n ", "")


def test_a_partition_has_a_row_for_each_kind_of_gpu_and_ranges_for_the_rest():
    mixed = Partition(
        name="mixed", nodes=(nodes(kind="a100"), nodes(gpus=0, cpus=32, memory_mb=900), nodes(gpus=0, cpus=128))
    )
    rows = [line.split() for line in text(mixed).splitlines()[3:]]
    assert [(row[1], row[3], row[4], row[-1]) for row in rows] == [
        ("1", "64", "500G", "a100:8"),
        ("2", "32-128", "0-500G", "0"),
    ]


def test_a_partition_of_very_many_kinds_is_one_row_of_ranges():
    many = Partition(name="zoo", nodes=tuple(nodes(gpus=count, kind=f"t{count}", cpus=count) for count in range(1, 30)))
    (row,) = (line.split() for line in text(many).splitlines()[3:])
    assert (row[1], row[3], row[-1]) == ("29", "1-29", "1-29")


def busy(count, state, free, **more):
    return replace(nodes(count, state, kind="a100", **more), free_gpus=free)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_is_free_is_shown_at_any_width(width):
    """Of nodes that get jobs: idle, kept for a job, and used in part; not of one that is drained."""
    groups = (
        busy(3, "idle", 24),
        busy(1, "planned", 8),
        busy(2, "mixed", 5),
        busy(1, "drained", 8),
        busy(1, "allocated", 0),
    )
    partition = Partition(name="scavenger-of-all", nodes=groups, max_time_s=129600, preemption="requeue", grace_s=90)
    lines = [*format_cluster(Cluster(name="big", version="24", partitions=(partition,)), width=width)][2:4]
    assert max(map(len, lines)) <= width
    head, row = (line.split() for line in lines)
    at = head.index
    assert [row[at(name)] for name in ("NODES", "IDLE", "MIX", "ALLOC", "PLAN", "DOWN")] == [
        "8",
        "3",
        "2",
        "1",
        "1",
        "1",
    ]
    assert (row[at("GPUS")], row[at("FREE")]) == ("a100:8", "37")


def test_free_gpus_are_not_told_where_slurm_does_not_say():
    assert "FREE" not in text(Partition(name="p", nodes=(nodes(),)), Partition(name="q", nodes=(nodes(gpus=0),)))


def test_a_row_has_a_long_name_and_a_long_type_too():
    lines = text(
        Partition(name="scavenger-of-everything", nodes=(nodes(kind="nvidia_a100-sxm4-80gb"),)), Partition(name="p")
    ).splitlines()
    first, second = (line.split() for line in lines[3:5])
    assert (first[0], first[-1]) == ("scavenger-of-everything", "nvidia_a100-sxm4-80gb:8")
    assert second[:2] == ["p", "0"] and lines[3].index(" 1 ") == lines[4].index(" 0 ")


def test_limits_and_access_rules_are_listed_below_the_table():
    shown = text(
        Partition(
            name="closed",
            state="DOWN",
            max_nodes=4,
            min_nodes=2,
            max_cpus_per_node=16,
            max_memory_per_node_mb=64000,
            default_time_s=600,
            groups=("physics",),
            accounts=("a", "b"),
            qos=("q",),
            denied_accounts=("c",),
            denied_qos=("r",),
        )
    ).replace("\n ", "")
    limits = "its state is DOWN; at most 4 nodes a job; at least 2 nodes a job; at most 16 CPUs a node; "
    limits += "at most 62G of memory"
    access = "only for groups physics; only for accounts a, b; only for QOS q; not for accounts c; not for QOS r"
    assert f"closed: {limits} a node; 10m for jobs without --time; {access}" in shown


def test_a_hidden_partition_is_shown_as_such():
    shown = text(Partition(name="open"), Partition(name="secret", hidden=True)).splitlines()
    assert [line.split()[0] for line in shown[3:5]] == ["open", "secret"]
    assert "secret: hidden, sinfo shows it with --all" in shown


def test_nodes_that_a_site_hides_are_mentioned():
    shown = text(Partition(name="private", unseen=24))
    assert "Not known: the 24 nodes of private, which this site does not show to you" in shown


def test_accounts_and_unknown_facts_come_last():
    shown = text(accounts=("ml", "bio"), qos=("normal",), default_account="ml", unlearned=("weather: cloudy",))
    assert shown.splitlines()[-3:] == [
        "Your accounts: ml (default), bio",
        "Your QOS: normal",
        "Not known: weather: cloudy",
    ]
    assert "Your accounts: none" in text(accounts=(), qos=())


def test_a_cluster_that_preempts_by_qos_says_so():
    shown = text(
        Partition(name="p", preemption="cancel"),
        preempts_by_qos=True,
        signals_on_preemption=True,
        kill_wait_s=20,
    ).replace("\n ", "")
    assert "`sacctmgr show qos format=Name,Preempt,PreemptMode,GraceTime` shows which QOS preempts which" in shown
    assert "when a job of a higher QOS needs its nodes: cancel, the job ends." in shown
    assert "First the job gets the signal of --signal-lead, and has 20 s to save a checkpoint." in shown


@pytest.mark.parametrize(
    ("time_s", "shown"), [(0, "0s"), (59, "59s"), (3600, "1h"), (5400, "1h30m"), (604800, "7d"), (90061, "1d1h")]
)
def test_a_time_has_two_units_at_most(time_s, shown):
    assert format_duration(time_s) == shown


def printed(cluster, tmp_path, *words):
    return typed("cluster", *words, cwd=tmp_path, **(os.environ | cluster.environment()))


def test_nodes_of_different_shapes_are_read_from_a_real_cluster(shapes):
    found = query_cluster({**os.environ, **shapes.environment()}, accounts=True)
    kinds = {
        partition.name: sorted((group.count, group.cpus, group.gpu_counts) for group in partition.nodes)
        for partition in found.partitions
    }
    assert kinds == {
        "two": [(1, 40, (("", 2),))],
        "eight": [(1, 40, (("a100", 8),))],
        "cpu": [(1, 40, ())],
        "all": [(1, 40, ()), (1, 40, (("", 2),)), (1, 40, (("a100", 8),))],
        "empty": [],
    }
    two, _, cpu, both, empty = found.partitions
    assert [*found.partitions_of(None)] == [two]
    assert (cpu.max_time_s, cpu.max_nodes, empty.usable) == (3600, 1, ())
    assert two.preemption == "off" and cpu.preemption == "requeue" and cpu.grace_s == 7 and both.preemption == "off"
    assert found.unlearned == ("accounts and QOS: this cluster has no accounting",)


def test_a_real_cluster_is_shown_in_a_table_and_as_json(shapes, tmp_path):
    table = printed(shapes, tmp_path)
    assert (table.returncode, table.stderr) == (0, "")
    lines = table.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    rows = {line.split()[0]: line.split() for line in lines[3:8]}
    at = lines[2].split().index
    assert (rows["two*"][at("CPUS")], rows["two*"][-1], rows["eight"][-1], rows["cpu"][-1]) == (
        "40",
        "2",
        "a100:8",
        "0",
    )
    assert (rows["cpu"][-2], rows["eight"][at("FREE")]) == ("1h", "8")
    assert "cpu: at most 1 node a job; jobs are preempted (requeue, after 7s)" in lines
    found = json.loads(printed(shapes, tmp_path, "--json").stdout)
    assert found["name"] == shapes.plan.cluster
    assert [partition["name"] for partition in found["partitions"]] == ["two", "eight", "cpu", "all", "empty"]
    assert found["partitions"][1]["nodes"][0]["gpu_type"] == "a100"


def test_names_that_a_real_slurm_takes_cannot_reach_the_terminal(shapes, tmp_path):
    env = {**os.environ, **shapes.environment()}
    names = [b"odd=name;x|y", b'e\x1b[m%"q', b"byte\xff"]
    try:
        for name in names:
            words = ["scontrol", "create", b"partitionname=" + name, "nodes=ALL"]
            subprocess.run(words, env=env, capture_output=True, check=True)
        shown = printed(shapes, tmp_path).stdout
        found = json.loads(printed(shapes, tmp_path, "--json").stdout)
    finally:
        for name in names:
            words = ["scontrol", "delete", b"partitionname=" + name]
            subprocess.run(words, env=env, capture_output=True, check=True)
    assert shown.replace("\n", "").isprintable()
    for name in ("odd=name;x|y", 'e\\x1b[m%"q', "byte\\udcff"):
        assert re.search(rf"^{re.escape(name)} +1 .* a100:8$", shown, re.MULTILINE), shown
    assert [os.fsencode(partition["name"]) for partition in found["partitions"][-3:]] == names


def test_without_a_cluster_it_ends_3_with_what_to_do(tmp_path):
    done = typed("cluster", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "was not found; log in to a cluster" in done.stderr
