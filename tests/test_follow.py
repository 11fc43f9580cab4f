"""Waiting: whole lines in the order they come, and an end that is not missed when the controller forgets the job."""

import pytest

from slurmddp import follow, slurm
from slurmddp.errors import ClusterError
from slurmddp.rundir import RunDir

LAST = "2026-01-02T03:04:05+0000 slurmddp: job 7, attempt 1.0, ended with status {}: done\n"


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    made.attempt("7", "0.0").mkdir(parents=True)
    return made


def test_only_whole_lines_are_passed_on_and_each_once(run):
    output = follow.Output(run, "7")
    log = run.rank_log("7", "0.0", 0)
    assert list(output.new()) == []
    log.write_bytes(b"one\ntw")
    assert list(output.new()) == ["one"]
    with log.open("ab") as file:
        file.write(b"o\n\xff\n")
    assert list(output.new()) == ["two", "\ufffd"]


def test_a_later_attempt_is_followed_too(run):
    output = follow.Output(run, "7")
    run.rank_log("7", "0.0", 0).write_text("first\n")
    assert list(output.new()) == ["first"]
    run.attempt("7", "1.0").mkdir()
    run.rank_log("7", "1.0", 0).write_text("second\n")
    run.rank_log("7", "1.0", 1).write_text("of another rank\n")
    assert list(output.new()) == ["second"]


def test_the_batch_scripts_last_words_tell_its_status(run):
    output = follow.Output(run, "7")
    assert output.status is None and output.since_end_s == float("inf")
    run.batch_log("7").write_text(LAST.format(77))
    list(output.new())
    assert output.status == 77 and output.since_end_s < 60


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (77, "FAILED")])
def test_a_job_that_the_controller_forgot_ended_as_its_script_said(run, monkeypatch, status, state):
    """The controller is a stand-in here: a real one forgets a job only after its MinJobAge, minutes later."""
    monkeypatch.setattr(slurm, "job", lambda job_id, _environ: slurm.Job(job_id, "UNKNOWN"))
    monkeypatch.setattr(follow, "ASK_S", 0.01)
    run.batch_log("7").write_text(LAST.format(status))
    shown, noticed = [], []
    assert follow.wait(run, "7", {}, show=shown.append, notice=noticed.append).state == state
    assert shown == [LAST.format(status).rstrip("\n")]
    assert noticed == ["job 7 is UNKNOWN"]


def test_a_controller_that_does_not_answer_ends_the_wait_after_a_while(run, monkeypatch):
    """The same stand-in."""
    asked = []

    def silent(job_id, _environ):
        asked.append(job_id)
        raise ClusterError("squeue: no answer")

    monkeypatch.setattr(slurm, "job", silent)
    monkeypatch.setattr(follow, "ASK_S", 0.001)
    with pytest.raises(ClusterError, match="no answer"):
        follow.wait(run, "7", {}, notice=print)
    assert len(asked) == 30
