"""The job file to begin with fits the cluster, whatever that calls its things, and is taken by the program itself."""

import tomllib

import pytest

from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.config import resolve
from slurmddp.script import job_template

GPUS = Nodes(names="g[1-4]", count=4, state="idle", cpus=40, memory_mb=250000, gpus=8)
CPUS = Nodes(names="c[1-9]", count=9, state="mixed", cpus=32, memory_mb=64000)
DOWN = Nodes(names="d[1-99]", count=99, state="down", cpus=64, memory_mb=64000, gpus=4)


def partition(name, *nodes, **values):
    return Partition(name=name, nodes=nodes, **values)


def written(*partitions, script="train.py", **values):
    cluster = Cluster(name="c", version="22.05.8", partitions=partitions, **values)
    return tomllib.loads(job_template.build_job_file(cluster, script=script, name="x", file="job.toml"))


def test_a_partition_with_gpus_is_preferred_then_the_default_one_then_one_without_preemption():
    table = written(partition("cpu", CPUS, default=True), partition("gpu", GPUS, max_time_s=1800))
    chosen = {"name": "x", "partition": "gpu", "nodes": 1, "gpus-per-node": 8, "time": "00:30:00"}
    assert table == {**chosen, "command": ["train.py"]}
    more = Nodes(names="h[1-50]", count=50, state="idle", cpus=40, memory_mb=250000, gpus=8)
    assert written(partition("big", more), partition("gpu", GPUS, default=True))["partition"] == "gpu"
    assert written(partition("low", more, preemption="requeue"), partition("safe", GPUS))["partition"] == "safe"


def test_without_gpus_it_has_two_ranks_a_node():
    table = written(partition("cpu", CPUS, default=True, min_nodes=2))
    assert (table["ntasks-per-node"], table["nodes"], table["time"]) == (2, 2, "04:00:00")
    assert "gpus-per-node" not in table


def test_what_is_down_or_not_for_this_user_is_not_chosen():
    partitions = (
        partition("broken", DOWN, default=True),
        partition("closed", GPUS, state="DRAIN"),
        partition("theirs", GPUS, accounts=("them",)),
        partition("empty"),
        partition("mine", GPUS, accounts=("us", "b")),
    )
    table = written(*partitions, accounts=("a", "b"), qos=("normal",))
    assert (table["partition"], table["account"]) == ("mine", "b")
    assert "qos" not in table
    assert "partition" not in written(*partitions[:2])


def test_an_account_is_named_when_it_is_the_only_one_and_a_qos_when_it_is_needed():
    assert written(partition("gpu", GPUS), accounts=("a",))["account"] == "a"
    assert "account" not in written(partition("gpu", GPUS), accounts=("a", "b"))
    table = written(partition("gpu", GPUS, qos=("high", "long")), qos=("low", "long", "high"))
    assert table["qos"] == "long"


def test_of_different_nodes_the_most_alike_count_with_their_type():
    def typed(kind, gpus, **values):
        return Nodes(names="x", memory_mb=1, gpus=gpus, gpu_type=kind, gpu_counts=((kind, gpus),), **values)

    few = typed("h100", 4, count=1, state="idle", cpus=96)
    many = [typed("a100", 8, count=3, state=state, cpus=40) for state in ("idle", "mixed")]
    assert written(partition("gpu", few, *many))["gpus-per-node"] == "a100:8"
    assert written(partition("gpu", *many))["gpus-per-node"] == 8
    text = job_template.build_job_file(
        Cluster(partitions=(partition("gpu", few, *many),)), script=None, name="x", file="j.toml"
    )
    assert "# of 7\n" in text and "cpus-per-task = 5" in text


@pytest.mark.parametrize("hostile", ['a"b\\c', "a'b #=|,;%", "a\x1b[2Jb\nnodes = 9", "\udcff"])
def test_names_that_are_no_ones_business_do_no_harm(hostile):
    fine = partition("fine", GPUS, default=True)
    cluster = Cluster(
        name=hostile, version=hostile, partitions=(fine, partition(hostile, GPUS)), accounts=("a", hostile)
    )
    text = job_template.build_job_file(cluster, script=None, name="x", file="job.toml")
    table = tomllib.loads(text)
    assert (table["partition"], table["nodes"]) == ("fine", 1)
    assert all(char.isprintable() or char == "\n" for char in text)
    alone = Cluster(partitions=(partition(hostile, GPUS),))
    table = tomllib.loads(job_template.build_job_file(alone, script=None, name="x", file="job.toml"))
    assert table.get("partition", hostile) == hostile


@pytest.mark.parametrize("cluster", [None, Cluster(), Cluster(partitions=(Partition(name="p", nodes=(GPUS,)),))])
@pytest.mark.parametrize("script", [None, "train.py", 'a "b".py'])
def test_what_is_written_is_a_job_file(cluster, script, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(job_template.build_job_file(cluster, script=script, name="x", file="job.toml"))
    spec = resolve.resolve(options={}, words=(), job_file=path, environ={}).spec
    assert spec.command == ((str(tmp_path / script),) if script else ())
    assert spec.time == "04:00:00"


@pytest.mark.parametrize(
    ("files", "script"),
    [
        ((), None),
        (("train.py", "main.py", "fit.py"), "train.py"),
        (("main.py", "fit.py"), "main.py"),
        (("fit.py",), None),
    ],
)
def test_the_script_is_train_or_main(files, script, tmp_path):
    for name in files:
        (tmp_path / name).touch()
    assert job_template.find_script(tmp_path) == script


def test_the_name_is_the_files_if_somebody_chose_it(tmp_path):
    assert job_template.choose_name(tmp_path / "exp1.toml", "train.py") == "exp1"
    assert job_template.choose_name(tmp_path / "job.toml", "train.py") == "train"
    assert job_template.choose_name(tmp_path / "job.toml", None) == "mnist"
