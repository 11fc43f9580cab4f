"""A run's own files tell how far it is."""

import os

import pytest
from event_lines import HEAD, event, write

from slurmddp.monitoring.status import job_status, query, query_jobs
from slurmddp.runs import facts, history
from slurmddp.runs.checkpoints import find_newest_saved
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.slurm.job_info import JobInfo


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def metrics(time, step, **values):
    return event("metrics", time, step=step, total=100, values=values)


def progress(run, *, state="RUNNING", now=100.0):
    job = facts.read_job(run, "7", JobInfo(job_id="7", state=state, source="squeue"), history=history.read_outline(run))
    return job_status.read_progress(run, job, now=now)


def test_how_far_a_job_is(run):
    write(run, metrics(10, 10, loss=0.5, samples_per_s=64.0), metrics(100, 40, loss="nan", samples_per_s=None))
    found = progress(run)
    assert (found.attempt, found.step, found.total, found.samples_per_s) == ("0.0", 40, 100, None)
    assert found.loss != found.loss, "nan"
    assert found.left_s == 60 * 90 / 30
    assert progress(run, state="PENDING").left_s is None
    assert progress(run, now=190.0).left_s == 90.0


@pytest.mark.parametrize(
    "lines",
    [
        [metrics(10, 10)],
        [metrics(10, 10), metrics(11, 10)],
        [metrics(9, 9), {**metrics(10, 10), "total": 0}],
        *([metrics(10, 10), metrics(10, 11)], [metrics(99, 10), metrics(98, 11)]),
        *([{**metrics(time, time), "total": total} for time in (10, 20)] for total in (2**63 - 1, 1e300)),
    ],
)
def test_no_time_is_told_without_a_pace_by_clocks_that_go_back_and_for_a_training_for_ever(run, lines):
    write(run, *lines)
    assert progress(run).left_s is None


def test_values_of_another_kind_are_no_numbers(run):
    write(run, event("metrics", 1, step="x", total=None, values=[3]))
    assert (progress(run).step, progress(run).total, progress(run).loss) == (0, None, None)


def test_the_newest_whole_checkpoint_counts_and_one_of_the_program_itself(run):
    own = run.path / "own.pt"
    for step in (10, 20, 30):
        (run.checkpoints / f"step-{step:09d}").mkdir(parents=True)
    (run.checkpoints / "step-000000020" / "manifest.json").touch()
    write(run)
    assert progress(run).checkpoint_step == 20
    write(run, event("attempt_start", 1, nodes="n1", log_offset=0, checkpoints=f"{run.path}/*.pt"))
    assert progress(run).checkpoint_path == ""
    own.touch()
    os.utime(own, (90, 90))
    found = progress(run)
    assert (found.checkpoint_path, found.checkpoint_age_s, found.checkpoint_step) == (str(own), 10.0, None)


def test_the_newest_checkpoint_of_any_training_of_a_script_counts(run):
    write(run)
    for name, at in (("checkpoints", 50), ("checkpoints-7", 80), ("checkpoints-3", 60)):
        (run.path / name).mkdir()
        (run.path / name / "last.pt").touch()
        os.utime(run.path / name / "last.pt", (at, at))
    found = progress(run)
    assert (found.checkpoint_path, found.checkpoint_age_s) == (str(run.path / "checkpoints-7" / "last.pt"), 20.0)


def test_a_checkpoint_of_the_program_counts_where_the_folder_of_the_run_has_none(run, tmp_path):
    (tmp_path / "own.pt").touch()
    assert find_newest_saved(run, f"{tmp_path}/*.pt").path == str(tmp_path / "own.pt")
    assert find_newest_saved(RunDir(tmp_path / "missing"), f"{tmp_path}/*.pt").path == str(tmp_path / "own.pt")
    assert find_newest_saved(RunDir(tmp_path / "missing"), "") is None


def test_a_status_of_many_runs_has_what_was_written_since_the_last_one(tmp_path):
    """Also where size and time of a file are as before."""
    runs = [RunDir(tmp_path / f"r{number}") for number in range(query.MANY + 1)]
    for made in runs:
        made.create()
        write(made, metrics(10, 10))
        append_record(made.submissions, {"job": "7"})
    told = []
    for step in (10, 20, 300):
        write(runs[3], metrics(10, step))
        os.utime(runs[3].events, (10, 10))
        (runs[5].checkpoints / f"step-{step:09d}").mkdir(parents=True)
        (runs[5].checkpoints / f"step-{step:09d}" / "manifest.json").touch()
        found = query_jobs([Target(made, ("7",)) for made in runs], {"PATH": "/nowhere"})
        told.append((found[3].progress.step, found[4].progress.step, found[5].progress.checkpoint_step))
    assert told == [(10, 10, 10), (20, 10, 20), (300, 10, 300)]


def test_restarts_and_requeues_have_their_reasons(run):
    back = {**HEAD, "attempt": "1.0"}
    again = {**HEAD, "attempt": "2.0"}
    write(
        run,
        event("start", 1),
        event("restart", 2, status=76, reason="peer lost"),
        event("requeue", 3, reason="preempted"),
        {"time": 9, "event": "start", **back},
        {"time": 20, "event": "start", **again},
    )
    found = progress(run)
    assert found.restarts == ((2.0, "peer lost"),)
    assert found.requeues == ((3.0, "preempted"), (9.0, facts.BY_SLURM))


def test_the_time_of_a_run_is_that_of_all_starts_of_all_its_jobs(run):
    """Job 7 has 2 nodes for 90 s, with a restart, and after a requeue 3 for 40 s; job 8 has 1 for 10 s."""
    run.spec.write_text('gpus-per-node = "a100:8"\n')
    write(
        run,
        event("attempt_start", 15, nodes="n[1-2]", allocated=10.0),
        event("restart", 50, status=76, reason="lost"),
        event("attempt_start", 50, nodes="n[1-2]", attempt="0.1"),
        event("requeue", 100, reason="preempted", attempt="0.1"),
        event("attempt_start", 205, nodes="n[1-3]", attempt="1.0", allocated=200.0),
        event("job_end", 240, status=0, reason="done", attempt="1.0"),
        event("attempt_start", 300, nodes="n1", job="8", allocated=300.0),
        event("metrics", 310, step=1, total=2, job="8"),
    )
    append_record(run.submissions, {"job": "7"})
    append_record(run.submissions, {"job": "8"})
    target = Target(run, ("7", "8"))
    (first, second) = query_jobs([target], {"PATH": "/nowhere"}, now=400.0)
    assert (first.total_s, first.node_hours) == (130, pytest.approx((2 * 90 + 3 * 40) / 3600))
    assert (second.total_s, second.gpu_hours) == (140, pytest.approx(8 * (2 * 90 + 3 * 40 + 10) / 3600))


def test_the_time_of_a_run_is_not_told_when_its_oldest_events_are_not_read(run, monkeypatch):
    monkeypatch.setattr(query, "FEW", 0)
    monkeypatch.setattr(query, "TAIL_BYTES", 200)
    write(run, event("attempt_start", 15, nodes="n[1-2]"), *(metrics(20 + step, step) for step in range(9)))
    (status,) = query_jobs([Target(run, ("7",))], {"PATH": "/nowhere"}, now=400.0)
    assert (status.total_s, status.progress.step) == (None, 8)
