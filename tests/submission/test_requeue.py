"""A person puts jobs back into the queue; on a real Slurm, where it takes seconds."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.files import append_record
from slurmddp.slurm import client, queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import outcome_of
from slurmddp.submission import cancel, requeue

SLEEPS = "#!/bin/bash\nexec srun sleep 300\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job(here, slurm, wait_for_job):
    """Return a function that submits a job and waits until it is in one of some states; it returns the job's id."""
    ids = []

    def start(*options, states=("RUNNING",)):
        (here / "sleeps.sbatch").write_text(SLEEPS)
        words = ("--parsable", "--requeue", "--output=/dev/null", "--job-name=q", *options, "sleeps.sbatch")
        ids.append(slurm("sbatch", *words).strip())
        if states:
            wait_for_job(ids[-1], *states)
        return ids[-1]

    yield start
    slurm("scancel", "--name=q")


@pytest.fixture
def typed(here, slurm_env):
    """Return a function that runs `slurmddp` as typed: status, stdout, stderr."""

    def run(*words, **environ):
        command = [sys.executable, "-m", "slurmddp", *words]
        done = subprocess.run(
            command, env={**slurm_env, **environ}, capture_output=True, text=True, check=False, timeout=300, cwd=here
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_running_job_runs_again_within_seconds_under_its_id(job, typed, wait_for_job):
    number = job("-N1")
    status, out, err = typed("requeue", number)
    assert (status, out) == (0, f"{number}\n"), err
    again = wait_for_job(number, "RUNNING", timeout_s=20)
    assert again["Restarts"] == "1"
    times = [datetime.fromisoformat(again[key]) for key in ("EligibleTime", "SubmitTime")]
    assert times[0] - times[1] < timedelta(seconds=5), "Slurm alone waits for 6 s here, for 121 s elsewhere"
    time.sleep(1)
    assert wait_for_job(number, "RUNNING", "FAILED")["JobState"] == "RUNNING"


def test_one_task_of_an_array_leaves_its_siblings_alone(job, typed, wait_for_job):
    number = job("-N1", "--array=0-1", states=())
    wait_for_job(f"{number}_1", "RUNNING")
    assert typed("requeue", f"{number}_1")[:2] == (0, f"{number}_1\n")
    assert wait_for_job(f"{number}_1", "RUNNING", timeout_s=20)["Restarts"] == "1"
    assert wait_for_job(f"{number}_0", "RUNNING")["Restarts"] == "0"
    status, _, err = typed("requeue", number)
    assert status == 2
    assert err.startswith(f"Error: job {number} is an array; give one task of it, as in {number}_")


def test_a_job_that_may_not_be_requeued_and_one_that_has_not_run_are_refused(job, typed, slurm):
    number = job("-N1", "--no-requeue")
    status, _, err = typed("requeue", number)
    assert status == 3 and f"job {number} has Requeue=0" in err and f"`slurmddp cancel {number}`, then submit" in err
    waiting = job("--hold", states=())
    status, _, err = typed("requeue", waiting)
    assert status == 3 and f"job {waiting} is PENDING (JobHeldUser) and has not run yet" in err
    slurm("scancel", waiting)


def test_a_held_job_is_refused_with_what_releases_it(job, typed, slurm, wait_for_job):
    number = job("-N1")
    slurm("scontrol", "requeuehold", number)
    wait_for_job(number, "PENDING", "REQUEUE_HOLD")
    status, _, err = typed("requeue", number)
    assert status == 3
    assert err.startswith(f"Error: job {number} is held (")
    assert err.endswith(f"); type: scontrol release {number}\n")


def test_jobs_and_runs_that_nobody_knows(typed):
    said = "Slurm does not know job 7; `slurmddp status` lists the jobs; a run that has ended continues when it is"
    assert typed("requeue", "7") == (3, "", f"Error: {said} submitted again\n")
    status, _, err = typed("requeue", "nobody", SLURMDDP_RUNS_DIR="there")
    assert status == 2 and err.startswith("Error: SLURMDDP_RUNS_DIR: 'there' is not a folder; give")
    status, _, err = typed("requeue", "7", PATH="/nowhere")
    assert status == 3 and err.startswith("Error: scontrol was not found; ")
    for words in ((), ("7", "8")):
        assert typed("requeue", *words)[:2] == (2, "")


def test_a_run_is_known_by_its_name_while_one_of_its_jobs_is_in_the_queue(here, typed, slurm, wait_for_job):
    (here / "train.py").write_text("import time\ntime.sleep(300)\n")
    name = f"q{os.getpid()}"
    number = typed("submit", "--name", name, "--chain", "1", "-t", "1", "train.py")[1].strip()
    wait_for_job(number, "RUNNING")
    status, out, err = typed("requeue", name)
    assert (status, out) == (0, f"{number}\n"), err
    slurm("scancel", "--name", name)
    wait_for_job(number)
    status, _, err = typed("requeue", name)
    assert status == 1
    spec = Path.cwd() / "jobs" / name / "spec.toml"
    again = f"to go on, type: slurmddp submit {spec} (starts COMMAND again, which must find its own checkpoint)\n"
    assert err == f"Error: run {name} has no job that runs or waits; {again}"
    assert typed("requeue", number) == (1, "", f"Error: job {number} is CANCELLED and stays so; {again}")
    assert wait_for_job(number)["JobState"] == "CANCELLED"


RECORD = JobInfo(
    job_id="17", name="a", state="RUNNING", source="scontrol", requeue=True, restarts=2, partition="p", limit_s=60,
    node_count=1, output="/nowhere/logs/17.out",
)  # fmt: skip


@pytest.fixture
def told(monkeypatch):
    """Return a function that lets Slurm show these records one after another; then the orders given to it."""
    orders = []

    def show(*records):
        waiting = list(records)
        monkeypatch.setattr(queries, "show", lambda *_: [waiting.pop(0) if len(waiting) > 1 else waiting[0]])
        monkeypatch.setattr(client, "order", lambda command, _: orders.append(command))
        return orders

    monkeypatch.setattr(requeue, "_POLL_S", 0)
    monkeypatch.setattr(requeue, "_NOW_S", 0)
    return show


def again():
    said = []
    return requeue.requeue("17", environ={}, notice=said.append), said


LEAVES = RECORD._replace(state="COMPLETING")


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ([LEAVES, RECORD._replace(state="COMPLETED")], "17 ended COMPLETED before it was requeued; submit it again"),
        ([LEAVES], "17 is COMPLETING and has not left .* type again: slurmddp requeue 17"),
    ],
)
def test_a_job_that_does_not_come_back_as_was_asked_is_told_so(told, monkeypatch, later, said):
    told(RECORD, *later)
    monkeypatch.setattr(requeue, "LEAVE_LIMIT_S", 0.05 if "has not left" in said else 60.0)
    with pytest.raises(ClusterError, match=said):
        again()


def test_the_start_is_ordered_until_it_sticks(told):
    """Slurm sets the time anew when the last old process is gone."""
    later = RECORD._replace(state="PENDING", restarts=3, eligible=datetime.now(UTC) + timedelta(seconds=121))
    orders = told(RECORD, later, later, later._replace(eligible=datetime.now(UTC) - timedelta(seconds=1)))
    job, said = again()
    assert orders[1:] == [["scontrol", "update", "JobId=17", "StartTime=now+3"]] * 2
    assert said[-1] == "job 17 is PENDING" and job.restarts == 3


def test_a_start_that_never_sticks_is_left_to_slurm(told):
    later = RECORD._replace(state="PENDING", restarts=3, eligible=datetime.now(UTC) + timedelta(seconds=121))
    orders = told(later)
    assert again()[1] == [f"job 17 is PENDING (not before {later.eligible.astimezone():%X})"]
    assert len(orders) == requeue.TRIES


def known(monkeypatch, **states):
    """Let Slurm know of a run's jobs what is given here."""
    monkeypatch.setattr(
        cancel,
        "query_jobs",
        lambda targets, _: [
            JobStatus(job_id=job, run=targets[0].run, name="a", outcome=outcome_of(states.get(f"job{job}", "UNKNOWN")))
            for job in targets[0].jobs
        ],
    )


@pytest.mark.usefixtures("here")
def test_a_run_is_its_job_that_runs_else_the_first_that_waits(monkeypatch):
    Path("jobs/a").mkdir(parents=True)
    for job in ("17", "18", "19"):
        append_record(Path("jobs/a/submissions.jsonl"), {"job": job})
    known(monkeypatch, job18="PENDING", job19="RUNNING")
    assert requeue.find_job("a", "jobs", {}) == "19"
    known(monkeypatch, job18="PENDING", job19="PENDING")
    assert requeue.find_job("a", "jobs", {}) == "18"
    known(monkeypatch)
    with pytest.raises(SlurmddpError, match="run a has no job that runs or waits; submit it again"):
        requeue.find_job("a", "jobs", {})


@pytest.mark.usefixtures("here")
def test_a_sweeps_setting_is_a_run_too_and_the_sweep_none(monkeypatch):
    Path("jobs/s/lr=2").mkdir(parents=True)
    append_record(Path("jobs/s/submissions.jsonl"), {"job": "17", "settings": [{"lr": "1"}, {"lr": "2"}]})
    known(monkeypatch, job17_1="RUNNING")
    assert requeue.find_job("s/lr=2", "jobs", {}) == "17_1"
    with pytest.raises(UsageError, match="'s' is a sweep of 2 settings; name one, as in 's/lr=1'"):
        requeue.find_job("s", "jobs", {})


@pytest.mark.usefixtures("here")
def test_a_controller_that_does_not_answer_ends_no_run(monkeypatch):
    Path("jobs/a").mkdir(parents=True)
    append_record(Path("jobs/a/submissions.jsonl"), {"job": "17"})
    silent = JobStatus(job_id="17", run=None, name="a", outcome=outcome_of("UNKNOWN"), silence="down")
    monkeypatch.setattr(cancel, "query_jobs", lambda *_: [silent])
    with pytest.raises(ClusterError, match=r"nothing was requeued: the controller does not answer \(down\)"):
        requeue.find_job("a", "jobs", {})
