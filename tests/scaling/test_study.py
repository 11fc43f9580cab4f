"""A study: full nodes, names, batches, errors before the first job; and measurements read from its runs."""

import json

import msgspec
import pytest

from slurmddp.cluster.partitions import Cluster, Nodes, Partition
from slurmddp.cluster.request import Request
from slurmddp.config.resolve import resolve
from slurmddp.errors import ClusterError, UsageError
from slurmddp.scaling.study import parse_sizes, plan_study, read_points, run_jobs

NODES = Nodes(names="n[1-2]", count=2, state="idle", cpus=64, memory_mb=1000, gpus=8, gpu_counts=(("a100", 8),))
CLUSTER = Cluster(partitions=(Partition(name="gpu", default=True, nodes=(NODES,)),))
SILENT = "no Slurm here"


def plan(numbers, *, words=(), worker=None, cluster=None, scaling="weak", repeats=1, **options):
    resolved = resolve(options={"job_name": "t", **options}, words=words, job_file=None, environ={}, worker=worker)
    whole = Request(resolved, cluster, silence="" if cluster else SILENT)
    return plan_study(resolved, whole, numbers, scaling=scaling, repeats=repeats)


def shapes(found):
    return [(job.gpus, job.spec.nodes, job.spec.gpus_per_node, job.spec.world_size) for job in found]


def test_a_node_is_filled_before_the_next_is_taken():
    found = plan([16, 1, 8, 4], gpus_per_node="a100:8")
    assert shapes(found) == [(1, 1, "a100:1", 1), (4, 1, "a100:4", 4), (8, 1, "a100:8", 8), (16, 2, "a100:8", 16)]


def test_ranks_without_gpus_fill_nodes_too():
    found = [(job.spec.nodes, job.spec.ntasks_per_node, job.spec.gpus) for job in plan([1, 4, 8], ntasks_per_node=4)]
    assert found == [(1, 1, 0), (1, 4, 0), (2, 4, 0)]


def test_each_size_and_repeat_is_a_run_of_its_own():
    found = plan([1, 2], repeats=2, gpus_per_node="2")
    assert [job.run.path.name for job in found] == ["t-scale-1", "t-scale-1-r2", "t-scale-2", "t-scale-2-r2"]


def test_each_size_gets_its_share_of_a_nodes_cpus():
    found = plan([1, 8, 16], cluster=CLUSTER, gpus_per_node="8")
    assert [job.spec.cpus_per_task for job in found] == [8, 8, 8]


def test_a_job_ends_after_a_hundred_steps_unless_others_are_given():
    assert plan([1], gpus_per_node="1")[0].spec.steps == 100
    (job,) = plan([1], gpus_per_node="1", steps=30)
    assert "SLURMDDP_STEP_LIMIT=30" in job.spec.variables


def test_the_batch_of_a_rank_is_constant_or_divided():
    batches = {
        scaling: [
            job.spec.worker.batch_size
            for job in plan([2, 4, 8], scaling=scaling, gpus_per_node="8", worker={"batch_size": 64})
        ]
        for scaling in ("weak", "strong")
    }
    assert batches == {"weak": [64, 64, 64], "strong": [64, 32, 16]}


def test_a_job_can_wait_for_another():
    (job,) = plan([1], gpus_per_node="1", dependency="afterok:3")
    assert job.after("17").spec.dependency == "afterok:3,afterany:17"
    assert plan([1], gpus_per_node="1")[0].after("17").spec.dependency == "afterany:17"


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
        ([1, 3], {"gpus_per_node": "8", "scaling": "strong"}, UsageError, "32 samples of a step cannot be divided"),
        ([1], {"gpus_per_node": "1", "job_name": "x" * 60}, UsageError, "job name .* at most 64"),
    ],
    ids=range(7),
)
def test_an_impossible_study_is_refused_as_a_whole(numbers, options, error, said):
    with pytest.raises(error, match=said):
        plan(numbers, **options)


def test_a_program_that_cannot_be_measured_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text("import torch")
    (tmp_path / "ours.py").write_text("import slurmddp")
    with pytest.raises(UsageError, match="'plain.py' does not use slurmddp, .* iterate over run.steps"):
        plan([1], words=("plain.py",), gpus_per_node="1")
    with pytest.raises(UsageError, match="does not use slurmddp"):
        plan([1], words=("./ours.py",), gpus_per_node="1", no_python=True)
    assert plan([1], words=("ours.py",), gpus_per_node="1")
    assert plan([1], words=("-m", "pkg.train"), gpus_per_node="1")


def test_sizes_are_unique_and_sorted():
    assert parse_sizes("4, 1,2,4") == (1, 2, 4)
    for wrong in ("", "1,,2", "0", "a", "1.5", "-1", "٣", "1000000"):
        with pytest.raises(UsageError, match="--gpus: .* is not a list of whole numbers"):
            parse_sizes(wrong)


HEAD = {"time": 1.0, "event": "timing", "job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Return a study of 1 and 2 GPUs with two repeats, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    options = {"job_name": "t", "gpus_per_node": "8", "steps": 40}
    resolved = resolve(options=options, words=(), job_file=None, environ={})
    return plan_study(resolved, Request(resolved), [1, 2], scaling="weak", repeats=2)


def write_events(job, *records, last="7"):
    """Write events of a run whose newest job is `last`."""
    job.run.create()
    job.run.submissions.write_text("".join(json.dumps({"job": number}) + "\n" for number in ("3", last)))
    job.run.events.write_text("".join(json.dumps(record) + "\n" for record in records))


def timing(world_size, times_s, waits_s=(), *, asked=40, job="7", samples=64):
    return {
        **HEAD,
        "job": job,
        "step": 40,
        "total": 640,
        "asked": asked,
        "world_size": world_size,
        "samples": samples,
        "block": 10,
        "times_s": list(times_s),
        "waits_s": list(waits_s),
    }


def test_the_warm_up_is_left_out_and_repeats_are_kept_apart(planned):
    write_events(planned[0], timing(1, [9.0, 1.0, 2.0, 3.0], [9.0, 0.1, 0.5, 1.5]))
    write_events(planned[1], timing(1, [9.0, 5.0, 5.0, 5.0], [9.0, 0.5, 0.5, 0.5]))
    (point,), lost = read_points(planned, warm_up=10)
    assert point.repeats_s == ((1.0, 2.0, 3.0), (5.0, 5.0, 5.0)) and point.time_s == 3.5
    assert (point.gpus, point.nodes, point.samples, point.steps) == (1, 1, 64, 640)
    assert point.communication == 0
    assert lost == ["2 GPUs: run t-scale-2 has no measurement; its output is in " + str(planned[2].run.logs)]


def test_the_wait_share_is_the_median_of_the_blocks_and_zero_for_one_rank(planned):
    write_events(planned[2], timing(2, [9.0, 1.0, 2.0, 4.0], [9.0, 0.1, 0.5, 3.0]))
    write_events(planned[0], timing(1, [9.0, 1.0, 2.0, 4.0], [9.0, 0.1, 0.5, 3.0]))
    assert [point.communication for point in read_points(planned, warm_up=10)[0]] == [0, 0.25]


def test_a_block_that_begins_in_the_warm_up_is_left_out(planned):
    write_events(planned[2], timing(2, [9.0, 9.0, 2.0, 3.0]))
    (point,), _ = read_points(planned, warm_up=11)
    assert point.repeats_s == ((2.0, 3.0),) and point.communication is None


@pytest.mark.parametrize(
    "record",
    [timing(1, [1.0] * 4, asked=50), timing(2, [1.0] * 4), timing(1, [1.0] * 4, job="3")],
    ids=["other steps", "other ranks", "an older job"],
)
def test_a_measurement_with_other_settings_does_not_count(planned, record):
    write_events(planned[0], record)
    assert read_points(planned, warm_up=0)[0] == []


def test_a_training_that_is_too_short_is_reported(planned):
    write_events(planned[0], timing(1, [1.0]))
    found, lost = read_points(planned, warm_up=20)
    assert found == [] and "1 GPU: the training ended after 10 steps, of which 20 are warm-up" in lost[0]


def test_a_program_without_run_steps_is_reported(planned):
    write_events(planned[0], {**HEAD, "event": "end", "status": 0, "reason": "done"})
    assert "succeeded without a measurement; only programs that iterate over" in read_points(planned, warm_up=0)[1][0]


@pytest.mark.parametrize("times", [None, "x", [None, "inf"], [[1.0]]])
def test_a_record_without_valid_times_is_no_measurement(planned, times):
    write_events(planned[0], {**timing(1, []), "times_s": times})
    assert read_points(planned, warm_up=0)[0] == []


def test_a_dependency_of_alternatives_is_refused_unless_together(planned):
    jobs = []
    for job in planned:
        resolved = job.request.resolved.replace("--dependency", dependency="after:1?after:2")
        jobs.append(job._replace(request=msgspec.structs.replace(job.request, resolved=resolved)))
    with pytest.raises(UsageError, match=r"^--dependency 'after:1\?after:2': .* give --together"):
        run_jobs(jobs, together=False, environ={}, notice=print)
