"""Answers of Slurm 20.11 to 25.x, and of hostile clusters, are read. tests/cli/test_cluster.py asks a real one."""

import re
import stat
import sys
import time
from pathlib import Path

import pytest

from slurmddp.cli.cluster import format_cluster
from slurmddp.cluster import inspect
from slurmddp.cluster.inspect import describe, parse_gpus, parse_nodes, query_cluster
from slurmddp.errors import ClusterError
from slurmddp.slurm.client import LostAnswerError

FIXTURES = Path(__file__).parent / "fixtures"


def cluster_of(config="", partitions="", nodes=""):
    return describe(parse_nodes(nodes, {}), f"{config}\n{partitions}")


def recorded(version):
    """Return the cluster that the answers of one version of Slurm describe."""
    text = (FIXTURES / f"{version}.txt").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^== (\w+)\n(.*?)(?=^== |\Z)", text, re.MULTILINE | re.DOTALL))
    return cluster_of(**parts | {"nodes": parts["nodes"].replace("\u241f", "\x1f")})


NODES = """NodeName=a CPUAlloc=0 CPUEfctv=12 CPUTot=16 ThreadsPerCore=2 CoreSpecCount=2
NodeName=b CPUAlloc=0 CPUTot=16 CPULoad=1 ThreadsPerCore=2 CoreSpecCount=3
NodeName=c CPUAlloc=0 CPUEfctv=16 CPUTot=16 ThreadsPerCore=1
NodeName=d CPUAlloc=0 CPUTot=16 ThreadsPerCore=1
"""


def test_cpus_that_a_node_keeps_are_none_of_a_jobs():
    """As 22.05 writes it, and as versions before it did, by slurm.conf(5)."""
    records = inspect.parse_node_records(NODES)
    shown = "gpu\x1f2\x1fidle\x1f16\x1f1\x1f\x1f\x1f{}\n"
    for names, cpus in (("a", 12), ("b", 10), ("c", 16), ("d", 16), ("a,c", 12), ("x", 16), ("a[", 16)):
        assert parse_nodes(shown.format(names), records)["gpu"][0].cpus == cpus


def test_the_gpus_that_no_job_has_are_those_of_the_nodes_less_those_in_use():
    """As `scontrol --details` of 22.05 writes it; without details no number is told."""
    records = inspect.parse_node_records(
        "NodeName=a Arch=x Gres=gpu:a100:8(S:0-1) GresDrain=N/A GresUsed=gpu:a100:3(IDX:0-2) Node=a\n"
        "NodeName=b Gres=gpu:a100:8 GresUsed=gpu:a100:0(IDX:N/A) \nNodeName=c Gres=(null)\n"
    )
    shown = "gpu\x1f2\x1fmixed\x1f16\x1f1\x1fgpu:a100:8\x1f\x1f{}\n"
    for names, free in (("a,b", 13), ("a,c", None), ("c", None), ("x", None)):
        assert parse_nodes(shown.format(names), records)["gpu"][0].free_gpus == free


def test_20_11_is_read():
    cluster = recorded("20.11")
    assert (cluster.name, cluster.version, cluster.requeue, cluster.max_array_size) == ("old", "20.11.6", False, 10001)
    (shared,) = cluster.partitions
    assert [*cluster.partitions_of(None)] == [shared]
    assert (shared.default_time_s, shared.max_time_s, shared.max_nodes) == (3600, 3 * 86400, None)
    assert (shared.groups, shared.accounts, shared.qos) == (("physics", "wheel"), None, None)
    assert (shared.default_memory, shared.max_memory_per_node_mb) == ("DefMemPerCPU=800", 32000)
    assert shared.preemption == "off"
    first, second = shared.nodes
    assert (first.gpus, first.gpu_type, first.features) == (2, "v100", ("skylake", "ib"))
    assert (first.state, first.usable, second.state, second.usable) == ("mixed", True, "down", False)


def test_21_08_takes_turns_and_suspends_where_a_partition_that_comes_first_has_the_same_nodes():
    cluster = recorded("21.08")
    assert {partition.name: partition.preemption for partition in cluster.partitions} == {
        "short": "gang",
        "normal": "suspend",
        "high": "off",
    }
    short, _, high = cluster.partitions
    assert short.node_count == 24 and short.nodes[2].cpus == 12 and short.nodes[2].memory_mb == 48000
    assert [group.state for group in high.nodes] == ["allocated", "planned"]


def test_22_05_is_read_as_it_was_recorded():
    cluster = recorded("22.05")
    assert (cluster.version, cluster.kill_wait_s) == ("22.05.8", 5)
    modes = [f"{one.name} {one.preemption} {one.grace_s}" for one in cluster.partitions]
    preempted = ["low requeue 10", "nograce requeue 0", "cancel cancel 10"]
    assert modes == ["gpu off 0", *preempted, "high off 0", "short off 0", "typed off 0", "empty off 0"]
    assert [partition.name for partition in cluster.partitions_of(None)] == ["gpu"]
    gpu, *_, short, typed, empty = cluster.partitions
    assert [(group.count, group.cpus, group.gpus) for group in gpu.nodes] == [(2, 16, 8)]
    assert (short.max_time_s, typed.max_time_s, typed.max_nodes) == (600, 3600, 1)
    assert typed.nodes[0].gpu_counts == (("a100", 2), ("h100", 1))
    assert empty.nodes == ()


def test_23_02_preempts_by_qos_and_hides_a_partition_without_nodes():
    cluster = recorded("23.02")
    assert cluster.preempts_by_qos and cluster.signals_on_preemption
    ampere, drained = cluster.partitions
    assert (ampere.preemption, ampere.grace_s) == ("requeue", 0)
    assert (ampere.max_nodes, ampere.qos, ampere.default_memory) == (
        64,
        ("support", "gpu1", "gpu2"),
        "DefMemPerGPU=125000",
    )
    assert [(group.state, group.usable) for group in ampere.nodes] == [
        ("idle", True),
        ("allocated", True),
        ("mixed", True),
        ("drained", False),
    ]
    assert {group.gpu_type for group in ampere.nodes} == {"nvidia_a100-sxm4-80gb"}
    assert (drained.hidden, drained.state, drained.nodes, drained.max_time_s) == (True, "INACTIVE", (), None)
    assert (drained.denied_accounts, drained.denied_qos, drained.accounts) == (("guests", "students"), ("free",), None)
    assert drained.max_cpus_per_node == 32


def test_25_11_is_read():
    cluster = recorded("25.11")
    cpu, gpu = cluster.partitions
    assert cluster.version == "25.11.4" and not cluster.preempts_by_qos and cpu.preemption == "off"
    assert (cpu.nodes[0].cpus, cpu.default_memory, cpu.max_memory_per_node_mb) == (1024, "DefMemPerNode=4000", 512000)
    mixed, cloud, silent = gpu.nodes
    assert (mixed.state, mixed.gpus, mixed.gpu_type) == ("mixed", 8, "")
    assert [mixed.gpus_of(kind) for kind in ("a100", "h100", "v100", "")] == [4, 4, 0, 8]
    assert (cloud.state, cloud.gpus, cloud.gpu_counts) == ("idle", 8, (("", 8),))
    assert (silent.state, silent.usable, silent.gpus_of("h100")) == ("no_respond", False, 8)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:8(S:0,2)", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:2080:4", {"2080": 4}),
        ("gpu:a100:4(S:0),gpu:a100:4(S:1)", {"a100": 8}),
        ("gpu:a100_3g.20gb:4,gpu:a100:2,mps:400", {"a100_3g.20gb": 4, "a100": 2}),
        ("lustre:4K,gpu:tesla:no_consume:8", {"tesla": 8}),
        ("gpu:no_consume:4", {"": 4}),
        ("gpu:0", {}),
        ("shard:8", {}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_gpus_are_found_among_generic_resources(gres, gpus):
    assert parse_gpus(gres) == gpus


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("idle~", "idle"),
        ("idle#", "idle"),
        ("mixed@", "mixed"),
        ("MIXED+PLANNED", "mixed"),
        ("IDLE+DRAIN", "drained"),
        ("draining*", "draining"),
        ("allocated*", "no_respond"),
        ("reserved", "reserved"),
        ("powered_down", "powered_down"),
    ],
)
def test_states_lose_their_marks(shown, state):
    nodes = parse_nodes(f"p\x1f1\x1f{shown}\x1f1\x1f1\x1f\x1f\x1fn1\n", {})
    assert nodes["p"][0].state == state


@pytest.mark.parametrize(
    ("kind", "cluster_mode", "partition", "effective"),
    [
        ("preempt/none", "OFF", "PreemptMode=REQUEUE", "off"),
        ("preempt/partition_prio", "REQUEUE", "PreemptMode=REQUEUE", "requeue"),
        ("preempt/partition_prio", "REQUEUE", "PreemptMode=OFF", "off"),
        ("preempt/partition_prio", "SUSPEND,GANG", "PreemptMode=CANCEL", "cancel"),
        ("preempt/partition_prio", "SUSPEND,GANG", "", "suspend"),
        ("preempt/partition_prio", "REQUEUE", "Nodes=n[1-2", "requeue"),
        ("preempt/partition_prio", "REQUEUE", "Nodes=n1", "off"),
        ("preempt/qos", "CANCEL", "PreemptMode=OFF", "cancel"),
    ],
)
def test_what_preemption_does_is_the_partitions_own_mode_before_the_clusters(kind, cluster_mode, partition, effective):
    """Nodes whose names cannot be read may be those of any partition."""
    found = cluster_of(
        f"PreemptType             = {kind}\nPreemptMode             = {cluster_mode}\n",
        f"PartitionName=low Nodes=n[1-2] PriorityTier=1 {partition}\nPartitionName=high Nodes=n2 PriorityTier=2\n",
    )
    assert found.partitions[0].preemption == effective


def test_the_users_signal_at_preemption_has_two_names():
    for parameters, sends in (
        ("PreemptParameters       = send_user_signal,youngest_first\n", True),
        ("SlurmctldParameters     = enable_configless,preempt_send_user_signal\n", True),
        ("PreemptParameters       = (null)\nSlurmctldParameters     = (null)\n", False),
    ):
        assert cluster_of(parameters).signals_on_preemption is sends


def test_a_site_may_expedite_requeues():
    assert cluster_of(config="SlurmctldParameters     = idle_on_node_suspend,enable_expedited_requeue\n").expedites
    assert not cluster_of(config="SlurmctldParameters     = idle_on_node_suspend\n").expedites


def test_nodes_that_a_site_does_not_show_are_not_taken_for_none():
    found = cluster_of(partitions="PartitionName=private TotalNodes=24\nPartitionName=empty TotalNodes=0\n")
    assert [(partition.unseen, partition.node_count) for partition in found.partitions] == [(24, 24), (0, 0)]


ODD = ["a=b", "x|y", "100%", "it's", '"q"', "\x1b[31mred\x1b[0m", "bell\x07", "\udcff\udcfe", "ä", "$(id)"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_read_and_cannot_reach_the_terminal(name):
    found = cluster_of(
        f"ClusterName             = {name}\nSLURM_VERSION           = {name}\n",
        f"PartitionName={name} Nodes={name} AllowAccounts={name} Default=YES MaxTime=1-00:00:00 State={name}\n",
        f"{name}\x1f1\x1fidle\x1f4\x1f1000\x1fgpu:{name}:2\x1f{name}\x1f{name}\n",
    )
    (partition,) = found.partitions
    assert (partition.name, partition.accounts, partition.nodes[0].names) == (name, (name,), name)
    lines = list(format_cluster(found))
    assert all(line.isprintable() for line in lines), lines
    assert any(" 1d " in line for line in lines), lines


@pytest.mark.parametrize(
    ("config", "partitions", "nodes"),
    [
        ("", "No partitions in the system\n", ""),
        (
            "nonsense\n= \n==\n",
            "PartitionName=p MaxTime=soon MaxNodes=-1 PriorityTier=x GraceTime=\n",
            "a\x1fb\n\x1f\x1f\n",
        ),
        ("KillWait = never\nMaxArraySize = many\n", "PartitionName=\n", "p\x1fx\x1f\x1f\x1f\x1f\x1f\x1f\n"),
    ],
)
def test_what_cannot_be_understood_sets_no_limit(config, partitions, nodes):
    found = cluster_of(config, partitions, nodes)
    assert (found.kill_wait_s, found.max_array_size) == (30, 1001)
    assert all(partition.max_time_s is partition.max_nodes is None for partition in found.partitions)
    assert list(format_cluster(found))


def test_ten_thousand_nodes_each_of_its_own_kind_take_less_than_a_second():
    partitions = "".join(
        f"PartitionName=p{tier} Nodes=n[1-10000] PriorityTier={tier} PreemptMode=REQUEUE\n" for tier in range(3)
    )
    rows = (
        f"p{tier}|1|mixed-|{number}|{number * 100}|gpu:t{number}:{number % 9}(S:0)|f{number}|n{number}\n"
        for tier in range(3)
        for number in range(1, 10001)
    )
    nodes = "".join(rows).replace("|", "\x1f")
    start = time.process_time()
    lines = list(
        format_cluster(cluster_of("PreemptType = preempt/partition_prio\nPreemptMode = REQUEUE\n", partitions, nodes))
    )
    took_s = time.process_time() - start
    assert took_s < 1
    assert re.search(r"p0 +10000 +0 +10000 +1-10000 +0-976G +none +0-8", "\n".join(lines)), lines


def program(folder, name, text):
    """Write a stand-in for one of Slurm's programs, which says what no real one here would."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_machine_without_slurm_is_an_error_with_what_to_do(tmp_path):
    with pytest.raises(ClusterError, match="was not found; log in to a cluster, try `slurmddp sandbox up`"):
        query_cluster({"PATH": str(tmp_path)})


def test_a_controller_that_is_silent_or_refuses_is_an_error(tmp_path):
    for name in ("sinfo", "scontrol"):
        program(tmp_path, name, "import time; time.sleep(30)")
    with pytest.raises(LostAnswerError, match="did not end within 0 s"):
        query_cluster({"PATH": str(tmp_path)}, timeout_s=0.2)
    for name in ("sinfo", "scontrol"):
        program(tmp_path, name, "import sys; sys.exit('slurm_load_partitions: Access denied')")
    with pytest.raises(ClusterError, match="scontrol: slurm_load_partitions: Access denied"):
        query_cluster({"PATH": str(tmp_path)})


def test_an_accounting_that_does_not_answer_is_said_not_fatal(tmp_path):
    program(tmp_path, "sinfo", "")
    program(tmp_path, "scontrol", "print('AccountingStorageType = accounting_storage/slurmdbd')")
    program(tmp_path, "sacctmgr", "import sys; sys.exit('sacctmgr: error: Unable to connect to database')")
    found = query_cluster({"PATH": str(tmp_path)}, accounts=True)
    assert (found.accounts, found.qos) == (None, None)
    assert found.unlearned == ("accounts and QOS: sacctmgr: Unable to connect to database",)


@pytest.mark.parametrize(
    ("config", "partition", "whole"),
    [
        ("SelectType = select/cons_tres", "OverSubscribe=EXCLUSIVE", True),
        ("", "Shared=EXCLUSIVE", True),
        ("SelectType = select/cons_tres", "Exclusive=NODE OverSubscribe=NO", True),
        ("SelectType = select/cons_tres", "Exclusive=USER OverSubscribe=NO", False),
        ("SelectType              = select/linear", "OverSubscribe=NO", True),
        ("SelectType = select/cons_tres", "OverSubscribe=NO ExclusiveUser=YES", False),
        ("", "", False),
    ],
)
def test_a_partition_that_gives_whole_nodes_is_known(config, partition, whole):
    (found,) = cluster_of(f"{config}\n", f"PartitionName=x {partition}\n").partitions
    assert found.whole_nodes == whole


def test_membership_is_each_account_and_qos_once():
    found = inspect.parse_membership("ml|ml|normal,high\nml|bio|normal\nml||\n")
    assert found == {"default_account": "ml", "accounts": ("ml", "bio"), "qos": ("normal", "high")}
    assert inspect.parse_membership("") == {"default_account": "", "accounts": (), "qos": ()}
