"""What became of jobs: a real Slurm, stand-ins for one that is slow, silent or unknown, and files."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polling
import pytest
from polling import ASK_SLURM_S

from slurmddp.cli.status_format import summarize
from slurmddp.monitoring.status import last_submission, query, query_jobs, slurm_answers
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.runs.submissions import read_origin

NOW = datetime.now().astimezone().replace(microsecond=0)
CLOCK = f"{NOW:%Y-%m-%dT%H:%M:%S}"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def says(tmp_path):
    """Return a function that puts stand-ins, scripts, in the place of Slurm's programs; one not given is not there."""

    def put(**programs):
        for program, script in programs.items():
            path = tmp_path / "bin" / program
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\necho x >>{tmp_path}/{program}.calls\n{script}\n")
            path.chmod(0o755)
        return {"PATH": f"{tmp_path}/bin:/bin:/usr/bin"}

    return put


def submitted(name, job, /, **record):
    run = RunDir.named("jobs", name)
    run.create()
    with run.submissions.open("a") as file:
        file.write(json.dumps({"job": job, "time": NOW.astimezone(UTC).isoformat(), **record}) + "\n")
    return run


def events(run, *lines):
    head = {"job": "17", "attempt": "0.0", "rank": 0, "host": "n1"}
    run.events.write_text("".join(json.dumps({**head, **line}) + "\n" for line in lines))


def queue(*rows):
    return "\n".join(f"echo 'slurmddp|{row}'" for row in rows)


def shown(row):
    """What scontrol prints of a job that is written as a line of squeue."""
    names = {"id": "JobId", "name": "JobName", "state": "JobState", "submit": "SubmitTime", "start": "StartTime"}
    names |= {"end": "EndTime", "nodes": "NodeList", "reason": "Reason"}
    told = {names[key]: value for key, value in (part.split("=") for part in row.split("|"))}
    head = f"JobId={told.pop('JobId')} JobName={told.pop('JobName')} UserId=me(1)"
    return f"echo '{head} {' '.join(f'{key}={value}' for key, value in told.items())}'"


def seen(words, environ):
    return query_jobs(lookup.find(words, "jobs"), environ)


DOWN = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
NO_ACCOUNTS = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def test_one_squeue_and_one_sacct_for_ten_thousand_jobs(says, tmp_path):
    """The stand-ins print lines in the form of 22.05.8."""
    half = "slurmddp|id=%d|state=RUNNING|submit=2026-11-21T23:00:00|elapsed=10:00|limit=1-00:00:00|name=x\\n"
    rest = "%d|COMPLETED|2026-11-21T23:00:00|600|0:0|x\\n"
    environ = says(
        squeue=f"seq 1 5000 | xargs printf '{half}'",
        sacct=f"echo 'JobID|State|Submit|ElapsedRaw|ExitCode|JobName'; seq 5001 10000 | xargs printf '{rest}'",
    )
    found = query_jobs([Target(None, (str(number),)) for number in range(1, 10001)], environ)
    assert [status.job_id for status in found] == [str(number) for number in range(1, 10001)]
    assert {status.phase for status in found[:5000]} == {"running"} and {item.phase for item in found[5000:]} == {
        "done"
    }
    assert [(tmp_path / f"{program}.calls").read_text() for program in ("squeue", "sacct")] == ["x\n", "x\n"]


def test_a_controller_that_is_down_leaves_the_files_and_how_old_they_are(says):
    run = submitted("a", "17")
    events(run, {"time": time.time() - 90, "event": "metrics", "step": 5, "total": 10, "values": {"loss": 1}})
    (status,) = seen(["a"], says(scontrol=DOWN, sacct=NO_ACCOUNTS))
    assert (status.state, status.source, status.progress.step) == ("RUNNING", "files", 5)
    assert 89 < status.age_s < 150 and "Unable to contact slurm controller" in status.silence


def test_a_controller_that_is_down_leaves_the_accounting(says):
    events(submitted("a", "17"), {"time": time.time() - 90, "event": "start"})
    table = f"printf 'JobID|State|Submit|JobName\\n17|RUNNING|{CLOCK}|a\\n'"
    (status,) = seen(["17"], says(scontrol=DOWN, sacct=table))
    assert (status.state, status.source) == ("RUNNING", "sacct") and 89 < status.age_s < 150


def test_what_the_controller_has_forgotten_does_not_run_whatever_the_accounting_says(says):
    table = f"printf 'JobID|State|Submit|JobName\\n17|RUNNING|{CLOCK}|a\\n'"
    submitted("a", "17")
    environ = says(sacct=table, scontrol=FORGOTTEN)
    (status,) = seen(["a"], environ)
    assert (status.state, status.silence) == ("UNKNOWN", "")
    assert status.meaning == "Slurm no longer knows it, and its files do not tell how it ended"


def test_a_brief_status_takes_one_question_also_of_a_job_that_was_requeued(says, tmp_path):
    run = submitted("a", "17", sha256="that of its script")
    events(run, {"time": 1.0, "event": "metrics", "step": 5})
    later = f"{NOW + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}"
    environ = says(squeue=queue(f"id=17|state=RUNNING|submit={later}|name=a"), sacct="", scontrol="")
    (status,) = query_jobs(lookup.find(["a"], "jobs"), environ, brief=True)
    assert (status.state, status.source, status.progress) == ("RUNNING", "squeue", None)
    assert [path.name for path in tmp_path.glob("*.calls")] == ["squeue.calls"]
    (status,) = query_jobs(lookup.find(["a"], "jobs"), says(squeue=FORGOTTEN, sacct=NO_ACCOUNTS), brief=True)
    assert (status.state, status.slurm) == ("UNKNOWN", None)


def test_a_job_that_came_back_and_is_not_told_of_yet_is_not_taken_for_one_that_waits(says):
    rows = f"17|REQUEUED|{CLOCK}|a\\n17|RUNNING|{CLOCK}|a\\n"
    submitted("a", "17")
    environ = says(sacct=f"printf 'JobID|State|Submit|JobName\\n{rows}'", scontrol=FORGOTTEN)
    assert seen(["a"], environ)[0].state == "UNKNOWN"


@pytest.mark.parametrize("words", ["JOB STATE\\n17 RUNNING", "{}", "17|RUNNING|?", "\\033[2J", ""])
def test_an_unknown_slurm_is_no_answer(says, words):
    environ = says(**dict.fromkeys(("squeue", "sacct", "scontrol"), f"printf '{words}\\n'"))
    (status,) = seen(["17"], environ)
    assert (status.state, status.phase, status.source) == ("UNKNOWN", "unknown", "files")


def test_scontrol_tells_where_sacct_is_not_understood(says):
    record = (
        f"JobId=17 JobName=a UserId=me(7) JobState=RUNNING Restarts=x NumNodes=? SubmitTime={CLOCK} RunTime=00:00:09"
    )
    (status,) = seen(["17"], says(sacct="echo ?", scontrol=f"echo '{record}'"))
    assert (status.state, status.source, status.restarts, status.elapsed_s) == ("RUNNING", "scontrol", None, 9)


def test_a_running_job_that_must_leave_is_told_so(says):
    submitted("a", "17")
    told = f"echo 'JobId=17 JobName=a UserId=me(1) JobState=RUNNING SubmitTime={CLOCK} PreemptTime={CLOCK}'"
    environ = says(squeue=queue(f"id=17|state=RUNNING|submit={CLOCK}|name=a"), sacct=NO_ACCOUNTS, scontrol=told)
    (status,) = seen(["a"], environ)
    assert status.meaning == "it is being preempted: it has its grace time to save in"
    assert summarize(status) == "it is being preempted"
    many = seen(["a", *map(str, range(100, 120))], environ)
    assert [status.job_id for status in many if status.meaning.startswith("it is being preempted")] == ["17"]


def test_programs_that_do_not_end_are_left(says, monkeypatch):
    monkeypatch.setattr(slurm_answers, "TIMEOUT_S", 0.3)
    events(submitted("a", "17"), {"time": time.time(), "event": "job_end", "status": 0, "reason": "done"})
    environ = says(**dict.fromkeys(("squeue", "sacct", "scontrol"), "exec sleep 60"))
    (status,) = seen(["a"], environ)
    assert (status.state, status.source, status.outcome.exit_status) == ("COMPLETED", "files", "0:0")
    assert status.ended and status.age_s >= 0
    assert "scontrol did not end" in status.silence


def test_without_slurm_the_files_tell():
    submitted("a", "17")
    (status,) = seen(["a"], {"PATH": "/nowhere"})
    assert status.state == "UNKNOWN" and "scontrol was not found" in status.meaning


def test_another_job_of_the_same_number_is_not_the_runs(says):
    """By its name and its time; one that was requeued has a later time."""
    later = NOW + timedelta(hours=1)
    environ = says(sacct=NO_ACCOUNTS)
    for row, ours in (
        (f"id=17|state=RUNNING|submit={CLOCK}|name=b", False),
        (f"id=17|state=RUNNING|submit={NOW - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}|name=a", False),
        (f"id=17|state=RUNNING|submit={CLOCK}|name=a", True),
        (f"id=17|state=RUNNING|submit={later:%Y-%m-%dT%H:%M:%S}|name=a", True),
    ):
        says(scontrol=shown(row))
        submitted("a", "17")
        assert (seen(["a"], environ)[0].state == "RUNNING") == ours, row


def test_a_run_whose_folder_was_renamed_keeps_its_job_and_a_copy_has_none(says):
    folder = Path.cwd() / "jobs" / "train"
    RunDir(folder).create()
    run = submitted("train", "17", folder=str(folder), inode=folder.stat().st_ino)
    environ = says(scontrol=shown(f"id=17|state=RUNNING|submit={CLOCK}|name=train"), sacct=NO_ACCOUNTS)
    shutil.copytree("jobs/train", "jobs/copied")
    (status,) = seen(["copied"], environ)
    assert status.state == "UNKNOWN" and status.meaning.startswith(f"the job is that of {run.path}; ")
    run.path.rename("jobs/renamed")
    (status,) = seen(["renamed"], environ)
    assert (status.state, status.name, status.source) == ("RUNNING", "renamed", "scontrol")


@pytest.mark.parametrize(("attempts", "took_s"), [(("0.0", "1.0", "1.1"), 50), (("1.1",), None)])
def test_how_long_a_job_ran_that_slurm_has_forgotten(says, attempts, took_s):
    """By Slurm's clock of a job that was put back into the queue: from its last start on."""
    starts = [
        {"time": 100.0 * number, "event": "attempt_start", "attempt": name} for number, name in enumerate(attempts)
    ]
    end = {"time": 150.0, "event": "job_end", "status": 0, "reason": "done", "attempt": attempts[-1]}
    events(submitted("a", "17"), *starts[:2], *[{**start, "time": 120.0} for start in starts[2:]], end)
    (status,) = seen(["a"], says(sacct=NO_ACCOUNTS, scontrol=FORGOTTEN))
    assert (status.state, status.elapsed_s) == ("COMPLETED", took_s)


@pytest.mark.parametrize(
    ("status", "state", "meaning"),
    [
        (0, "COMPLETED", "it is done; Slurm counts it as preempted, because it ended within its grace time"),
        (75, "PREEMPTED", "why"),
    ],
)
def test_a_run_that_is_done_was_not_preempted(says, status, state, meaning):
    events(submitted("a", "17"), {"time": 1.0, "event": "job_end", "status": status, "reason": "why"})
    environ = says(scontrol=shown(f"id=17|state=PREEMPTED|submit={CLOCK}|name=a"), sacct=NO_ACCOUNTS)
    (found,) = seen(["a"], environ)
    assert (found.state, found.meaning) == (state, meaning)


def test_a_job_that_was_cancelled_while_it_waited_has_not_started(says):
    row = f"id=17|state=CANCELLED|submit={CLOCK}|start={CLOCK}|end={CLOCK}|reason=Priority"
    for nodes, started, reason in (("", False, ""), ("n1", True, "Priority")):
        environ = says(scontrol=shown(f"{row}|nodes={nodes}|name=a"), sacct=NO_ACCOUNTS)
        (found,) = seen(["17"], environ)
        assert (bool(found.started), found.reason) == (started, reason)


STATES = [
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"),
    *("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "COMPLETING", "CONFIGURING", "LAUNCH_FAILED", "POWER_UP_NODE"),
    *("RECONFIG_FAIL", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "REVOKED"),
    *("RESV_DEL_HOLD", "SIGNALING", "STAGE_OUT"),
]
"""Base states and flags of squeue(1), 22.05 to 25.05."""


def test_every_state_has_a_phase_and_all_but_those_that_say_it_plain_words(says):
    rows = [f"id={number}|state={state}|name=x|reason=" for number, state in enumerate([*STATES, "BRAND_NEW"], start=1)]
    environ = says(squeue=queue(*rows), sacct=NO_ACCOUNTS, scontrol=FORGOTTEN)
    found = seen([str(number + 1) for number in range(len(rows))], environ)
    assert [status.state for status in found if status.phase == "unknown"] == ["BRAND_NEW"]
    silent = {status.state for status in found if not status.meaning}
    assert silent == {"RUNNING", "COMPLETED", "BRAND_NEW"}
    held = {status.state for status in found if f"scontrol release {status.job_id}" in status.meaning}
    assert held == {"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({0: "0 rank 0 on n1: done"}, "COMPLETED"),
        ({0: "76 rank 0 on n1: peer lost", 1: "77 rank 1 on n1: boom"}, "FAILED"),
        ({0: "75 rank 0 on n1: stop signal received"}, "STOPPED"),
        ({}, "UNKNOWN"),
        (None, "RUNNING"),
    ],
)
def test_a_run_on_this_machine_is_told_by_its_files_and_slurm_is_not_asked(said, state):
    run, job_id = RunDir.named("jobs", "train"), f"local-20260101-000000-{os.getpid()}"
    run.create()
    run.attempt(job_id, "0.0").mkdir(parents=True)
    for rank, text in (said or {}).items():
        run.rank_record(job_id, "0.0", rank).write_text(text + "\n")
    if said is None:
        run.owner.write_text(f"local:{socket.gethostname()} {job_id} 0.0\n")
    for words in ([], ["train"]):
        (status,) = query_jobs(lookup.find(words, "jobs", local=True), {"PATH": "/nowhere"})
        assert (status.job_id, status.state, status.source, status.silence) == (job_id, state, "files", "")
    assert ("boom" in status.meaning) == (state == "FAILED")


def test_a_job_has_the_name_that_its_script_gave_it(says):
    """A script without --job-name is named after its file in Slurm, and its run without the suffix."""
    run = submitted("train", "17", name="train.sbatch")
    events(run, {"time": time.time(), "event": "job_end", "status": 0})
    (status,) = seen(["train"], says(scontrol=shown(f"id=17|state=FAILED|submit={CLOCK}|name=train.sbatch")))
    assert (status.state, status.source) == ("FAILED", "scontrol")


def test_a_job_of_the_same_number_and_another_name_is_named(says):
    submitted("train", "17")
    environ = says(scontrol=shown(f"id=17|state=RUNNING|submit={CLOCK}|name=b"), sacct=NO_ACCOUNTS)
    (status,) = seen(["train"], environ)
    assert (status.state, status.source) == ("UNKNOWN", "files")
    assert status.meaning == "Slurm's job of this number is named b, not train: it is another one"


def test_the_current_jobs_of_a_run_are_the_last_submission_with_its_chain():
    for job, after in (("5", None), ("7", None), ("8", "7"), ("9", "8")):
        submitted("a", job, after=after)
    (whole,) = lookup.find(["a"], "jobs")
    assert (whole.jobs, last_submission(whole).jobs) == (("5", "7", "8", "9"), ("7", "8", "9"))
    assert last_submission(Target(None, ("3",))).jobs == ("3",)


def test_the_current_jobs_of_a_sweep_are_in_each_of_its_arrays():
    for job, rates in (("5", "ab"), ("7", "c")):
        submitted("s", job, settings=[{"lr": rate} for rate in rates])
    (whole,) = lookup.find(["s"], "jobs")
    assert last_submission(whole).jobs == ("5", "7")


def test_the_origin_of_an_array_is_read_once_for_all_its_tasks(monkeypatch):
    run, read = submitted("a", "5"), []
    monkeypatch.setattr(query, "read_origin", lambda *each: read.append(each) or read_origin(*each))
    found = query_jobs([Target(run, tuple(f"5_{task}" for task in range(9)))], {"PATH": "/nowhere"})
    assert ({status.run for status in found}, len(found), len(read)) == ({run}, 9, 1)


def test_nobody_is_asked_about_no_job():
    assert query_jobs([], {"PATH": "/nowhere"}) == []


TRAINS = """
import time
import slurmddp, torch
with slurmddp.init() as ddp:
    run = slurmddp.Checkpointer(model=torch.nn.Linear(2, 1), every_steps=3)
    for step in run.steps(100000):
        run.log(loss=0.5, samples_per_s=64.0)
        time.sleep(0.05)
"""


@pytest.fixture
def typed(slurm_env):
    def run(*words):
        command = [sys.executable, "-m", "slurmddp", *words]
        done = subprocess.run(command, env=slurm_env, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def until(slurm_env):
    """Return a function that looks at jobs until a condition holds of the first."""

    def wait(words, condition):
        def look_once():
            found = seen(words, slurm_env)
            return found if condition(found[0]) else None

        return polling.until(look_once, otherwise=lambda: seen(words, slurm_env), pause_s=ASK_SLURM_S)[0]

    return wait


def test_jobs_on_a_real_slurm(typed, until, slurm, slurm_env, sandbox, tmp_path):
    """One that runs, is preempted and comes back, is cancelled; one that waits, fails, is done; and an array."""
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "boom.py").write_text("raise ValueError('boo')")
    name, small = f"st{os.getpid()}", ("-c1", "--ntasks-per-node=1", "-N1")
    job = typed("submit", "--name", name, "-p", "low", "-t", "20", *small, "train.py")[1].strip()
    waits = typed("submit", "--name", f"{name}w", "--hold", *small, "boom.py")[1].strip()
    array = slurm("sbatch", "--parsable", "-o/dev/null", "--array=0-2%1", "--wrap", "sleep 300").strip()
    try:
        told = typed("submit", "--name", f"{name}f", *small, "--wait", "--json", "boom.py")
        assert told[0] == 1 and json.loads(told[1])["jobs"][0]["diagnosis"]["rank"] == 0
        assert "is FAILED" in told[2] and "ValueError: boo" in told[2]
        failed = seen([f"{name}f"], slurm_env)[0]
        assert (failed.phase, failed.outcome.exit_status) == ("failed", "77:0") and "ValueError: boo" in failed.meaning
        waiting = seen([waits], slurm_env)[0]
        assert (waiting.phase, waiting.reason, waiting.run.path.name) == ("queued", "JobHeldUser", f"{name}w")
        assert f"scontrol release {waits}" in waiting.meaning and waiting.expected_start is None
        running = until([name], lambda status: status.progress and status.progress.checkpoint_step)
        assert (running.phase, running.limit_s, running.source, running.age_s) == ("running", 1200, "scontrol", 0)
        assert running.progress.left_s > 0 and running.progress.loss == 0.5 and len(running.nodes) == 1
        tasks = {status.job_id: status.phase for status in seen([array], slurm_env)}
        assert tasks == {f"{array}_0": "running", f"{array}_[1-2%1]": "queued"}
        assert [status.job_id for status in seen([f"{array}_2"], slurm_env)] == [f"{array}_2"]
        status, out, err = typed("cancel", array, f"{array}_0")
        assert (status, set(out.split())) == (0, {array, f"{array}_0"}), err
        assert {task.phase for task in seen([array], slurm_env)} == {"cancelled"}
        sandbox.preempt(job)
        back = until([name], lambda status: status.restarts == 1 and status.progress.attempt == "1.0")
        assert back.progress.requeues and back.job_id == job and "preempted" not in back.meaning
        shown = typed("status", name, f"{name}w", f"{name}f")
        assert shown[0] == 1 and {name, f"{name}w", f"{name}f"} <= set(shown[1].split())
        slurm("scontrol", "requeue", job)
        Path("jobs", f"{name}w").rename(f"jobs/{name}m")
        shutil.copytree(f"jobs/{name}m", f"jobs/{name}c")
        assert typed("cancel", f"{name}c")[1] == ""
        ended = typed("cancel", name, f"{name}m")
        assert (ended[0], set(ended[1].split())) == (0, {job, waits}), ended[2]
        assert [task.phase for task in seen([name, waits], slurm_env)] == ["cancelled"] * 2
        assert typed("status", name)[0] == 1
    finally:
        slurm("scancel", job, waits, array)
