"""Keys and their effects. Slurm is a stand-in; the files of the run are real."""

from dataclasses import replace

import pytest

from slurmddp.cli.watch.keys import Session
from slurmddp.cli.watch.poller import Answer
from slurmddp.cli.watch.run_metrics import RunMetrics
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.layout import RunDir, append_record


class Slurm:
    """A stand-in for the poller that records requests."""

    def __init__(self, *jobs):
        self.last = Answer(jobs, 0.0)
        self.asking, self.message, self.requests = False, "", []

    def refresh(self):
        self.requests.append("refresh")

    def cancel(self, job_id):
        self.requests.append(f"cancel {job_id}")

    def requeue(self, job_id):
        self.requests.append(f"requeue {job_id}")


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    made.attempt("7", "0.0").mkdir(parents=True)
    return made


@pytest.fixture
def slurm(run):
    job = JobStatus(job_id="7", run=run, name="r", state="RUNNING")
    return Slurm(job, replace(job, job_id="8", state="FAILED"), replace(job, job_id="9", run=None, state="PENDING"))


def press(session, *keys):
    for key in keys:
        session.press(key)
    return session.view(24)


def test_arrows_choose_a_job_and_stay_with_it_when_others_come(slurm):
    session = Session(slurm)
    assert press(session).job.job_id == "7"
    assert press(session, "down", "j", "down").job.job_id == "9"
    assert press(session, "k").job.job_id == "8"
    slurm.last = Answer(slurm.last.jobs[::-1], 1.0)
    assert (press(session).chosen, press(session).job.job_id) == (1, "8")


@pytest.mark.parametrize(("key", "what"), [("c", "cancel"), ("r", "requeue")])
def test_a_job_is_changed_only_after_confirmation(slurm, key, what):
    session = Session(slurm)
    assert press(session, key).question == f"{what} job 7 (r)?"
    assert press(session, "q").message == "not confirmed; nothing was done" and not session.over
    assert slurm.requests == []
    press(session, key, "y")
    assert slurm.requests == [f"{what} 7"]


def test_an_ended_job_is_not_changed(slurm):
    session = Session(slurm)
    assert press(session, "down", "c").message == "job 8 is FAILED: there is nothing to cancel"
    assert press(session, "y").question == "" and slurm.requests == []


def test_a_message_goes_away(slurm, monkeypatch):
    session = Session(slurm)
    slurm.message = "done"
    assert press(session, *()).message == "done"
    monkeypatch.setattr("slurmddp.cli.watch.keys.MESSAGE_S", 0.0)
    assert session.view(24).message == ""


def test_a_key_opens_and_closes_its_page(slurm):
    session = Session(slurm)
    assert [press(session, key).page for key in ("l", "l", "?", "escape", "enter", "h", "h")] == [
        "output", "jobs", "help", "jobs", "output", "help", "jobs",
    ]  # fmt: skip


def test_keys_ask_slurm_and_quit(slurm):
    session = Session(slurm)
    press(session, "s", "unknown key", "q")
    assert slurm.requests == ["refresh"] and session.over


def test_output_is_of_the_chosen_rank_and_scrolls(slurm, run):
    for rank in (0, 1):
        run.rank_log("7", "0.0", rank).write_text("".join(f"rank {rank} line {line}\n" for line in range(100)))
    session = Session(slurm)
    assert press(session).output[-1] == "rank 0 line 99"
    assert press(session, "right", "l").output[-1] == "rank 1 line 99"
    assert press(session, "page up", "up").output[-1] == "rank 1 line 88"
    assert press(session, "page down", "page down").output[-1] == "rank 1 line 99"
    assert press(session, "right").output == (
        "rank 2 has no output in attempt 0.0 of job 7; the last with output is 1",
    )


def metrics(run, step, loss, job="7"):
    head = {"time": float(step), "event": "metrics", "job": job, "attempt": "0.0", "rank": 0, "host": "n1"}
    append_record(run.events, {**head, "step": step, "total": 10, "values": {"loss": loss}})


def test_the_files_are_newer_than_slurms_answer(slurm, run):
    session = Session(slurm)
    metrics(run, 1, 0.5)
    assert press(session).job.progress.step == 1
    metrics(run, 2, 0.25)
    view = press(session)
    assert (view.job.progress.step, view.loss) == (2, ((1, 0.5), (2, 0.25)))


def test_a_repeated_step_is_drawn_once(run):
    for step, loss in ((1, 0.5), (2, 0.4), (3, 0.3), (2, "nan"), (3, 0.2)):
        metrics(run, step, loss)
    record = RunMetrics(run)
    record.read()
    assert [step for step, _ in record.curve("loss")] == [1, 2, 3]
    assert record.curve("loss")[-1] == (3, 0.2) and record.curve("nothing") == ()


def test_a_new_events_file_replaces_the_old_one(run):
    metrics(run, 1, 0.5)
    record = RunMetrics(run)
    record.read()
    run.events.unlink()
    record.read()
    metrics(run, 7, 0.1)
    record.read()
    assert record.curve("loss") == ((7, 0.1),)
