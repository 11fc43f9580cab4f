"""The jobs of a study: full nodes, names, batches, and errors before the first job is submitted."""

import pytest

from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.cluster.request import Request
from slurmddp.config.resolve import resolve
from slurmddp.errors import ClusterError, UsageError
from slurmddp.scaling.plan import parse_sizes, plan_study

NODES = Nodes(names="n[1-2]", count=2, state="idle", cpus=64, memory_mb=1000, gpus=8, gpu_counts=(("a100", 8),))
CLUSTER = Cluster(partitions=(Partition(name="gpu", default=True, nodes=(NODES,)),))
SILENT = "no Slurm here"


def planned(numbers, *, words=(), worker=None, cluster=None, scaling="weak", repeats=1, **options):
    resolved = resolve(options={"job_name": "t", **options}, words=words, job_file=None, environ={}, worker=worker)
    whole = Request(resolved, cluster, silence="" if cluster else SILENT)
    return plan_study(resolved, whole, numbers, scaling=scaling, repeats=repeats)


def shapes(found):
    return [(job.gpus, job.spec.nodes, job.spec.gpus_per_node, job.spec.world_size) for job in found]


def test_a_node_is_filled_before_the_next_is_taken():
    found = planned([16, 1, 8, 4], gpus_per_node="a100:8")
    assert shapes(found) == [(1, 1, "a100:1", 1), (4, 1, "a100:4", 4), (8, 1, "a100:8", 8), (16, 2, "a100:8", 16)]


def test_ranks_without_gpus_fill_nodes_too():
    found = [(job.spec.nodes, job.spec.ntasks_per_node, job.spec.gpus) for job in planned([1, 4, 8], ntasks_per_node=4)]
    assert found == [(1, 1, 0), (1, 4, 0), (2, 4, 0)]


def test_each_size_and_repeat_is_a_run_of_its_own():
    found = planned([1, 2], repeats=2, gpus_per_node="2")
    assert [job.run.path.name for job in found] == ["t-scale-1", "t-scale-1-r2", "t-scale-2", "t-scale-2-r2"]


def test_each_size_gets_its_share_of_a_nodes_cpus():
    found = planned([1, 8, 16], cluster=CLUSTER, gpus_per_node="8")
    assert [job.spec.cpus_per_task for job in found] == [8, 8, 8]


def test_a_job_ends_after_a_hundred_steps_unless_others_are_given():
    assert planned([1], gpus_per_node="1")[0].spec.steps == 100
    (job,) = planned([1], gpus_per_node="1", steps=30)
    assert "SLURMDDP_STEP_LIMIT=30" in job.spec.variables


def test_the_batch_of_a_rank_is_constant_or_divided():
    batches = {
        scaling: [
            job.spec.worker.batch_size
            for job in planned([2, 4, 8], scaling=scaling, gpus_per_node="8", worker={"batch_size": 64})
        ]
        for scaling in ("weak", "strong")
    }
    assert batches == {"weak": [64, 64, 64], "strong": [64, 32, 16]}


def test_a_job_can_wait_for_another():
    (job,) = planned([1], gpus_per_node="1", dependency="afterok:3")
    assert job.after("17").spec.dependency == "afterok:3,afterany:17"
    assert planned([1], gpus_per_node="1")[0].after("17").spec.dependency == "afterany:17"


@pytest.mark.parametrize(
    ("numbers", "options", "error", "said"),
    [
        ([12], {"gpus_per_node": "8"}, UsageError, "--gpus 12 leaves a node of 8 partly empty; give 8 or 16"),
        ([1], {"gpus_per_node": "8", "ntasks_per_node": 4}, UsageError, "leave --ntasks-per-node out"),
        ([1], {}, ClusterError, f"how many GPUs fill a node is not known .{SILENT}.; give --gpus-per-node"),
        ([1], {"cluster": Cluster()}, ClusterError, "its nodes have no GPUs"),
        (
            [8, 64],
            {"gpus_per_node": "8", "cluster": CLUSTER},
            ClusterError,
            "^--gpus 64: partition gpu has 16 GPUs; give at most 16, or another --partition$",
        ),
        ([1], {"worker": {"strategy": "dp"}}, UsageError, "--strategy dp is one process"),
        ([1, 3], {"gpus_per_node": "8", "scaling": "strong"}, UsageError, "32 samples of a step cannot be divided"),
        ([1], {"gpus_per_node": "1", "job_name": "x" * 60}, UsageError, "job name .* at most 64"),
    ],
    ids=range(8),
)
def test_an_impossible_study_is_refused_as_a_whole(numbers, options, error, said):
    with pytest.raises(error, match=said):
        planned(numbers, **options)


def test_a_program_that_cannot_be_measured_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text("import torch")
    (tmp_path / "ours.py").write_text("import slurmddp")
    with pytest.raises(UsageError, match="'plain.py' does not use slurmddp, .* give --from-csv"):
        planned([1], words=("plain.py",), gpus_per_node="1")
    with pytest.raises(UsageError, match="does not use slurmddp"):
        planned([1], words=("./ours.py",), gpus_per_node="1", no_python=True)
    assert planned([1], words=("ours.py",), gpus_per_node="1")
    assert planned([1], words=("-m", "pkg.train"), gpus_per_node="1")


def test_sizes_are_unique_and_sorted():
    assert parse_sizes("4, 1,2,4") == (1, 2, 4)
    for wrong in ("", "1,,2", "0", "a", "1.5", "-1", "٣", "1000000"):
        with pytest.raises(UsageError, match="--gpus: .* is not a list of whole numbers"):
            parse_sizes(wrong)
