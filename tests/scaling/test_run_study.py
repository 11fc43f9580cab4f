"""Measurements read from the runs of a study; tests/cli/test_scale.py runs jobs."""

import json
from dataclasses import replace

import msgspec
import pytest

from slurmddp.cluster.request import Request
from slurmddp.config.resolve import resolve
from slurmddp.errors import UsageError
from slurmddp.scaling.plan import plan_study
from slurmddp.scaling.run_study import read_points, run_jobs

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
        jobs.append(replace(job, request=msgspec.structs.replace(job.request, resolved=resolved)))
    with pytest.raises(UsageError, match=r"^--dependency 'after:1\?after:2': .* give --together"):
        run_jobs(jobs, together=False, environ={}, notice=print)
