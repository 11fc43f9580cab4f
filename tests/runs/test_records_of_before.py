"""Runs that slurmddp 0.2.0 made at commit f2f2551, on a real Slurm (22.05, three nodes), are read as they ended.

`recorded/before` has their files, without weights, and with other paths; `times.json` is when each was last written.
`fenced` lost its owner file, and `torn` the end of its last event, by hand.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurmddp.cli import group
from slurmddp.diagnose.diagnosis import diagnose
from slurmddp.outcome import Kind
from slurmddp.report.collect import collect_report, make_json
from slurmddp.runs.checkpoints import find_saved
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.facts import read_run
from slurmddp.runs.history import read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo

RECORDED = Path(__file__).parent / "recorded" / "before"
HOME = "/home/me/my-project"
NO_SLURM = {"PATH": "/nowhere"}
NOW = 1795615000.0
"""In seconds since 1970, some minutes after the last of the runs."""

DONE, STOPPED, FENCED, CRASHED, FAILED = Kind.DONE, Kind.STOPPED, Kind.FENCED, Kind.CRASHED, Kind.FAILED
RUNS = {
    "done": ("2838893", DONE, 0, 6, {"0.0": DONE}),
    "failed": ("2838897", FAILED, 77, 2, {"0.0": FAILED}),
    "killed": ("2838904", CRASHED, 76, 2, {"0.0": CRASHED, "0.1": CRASHED}),
    "preempted": ("2838901", DONE, 0, 30, {"0.0": STOPPED, "1.0": STOPPED, "2.0": DONE}),
    "stopped": ("2838918", STOPPED, 75, 10, {"0.0": STOPPED}),
    "cancelled": ("2838920", Kind.CANCELLED, None, 9, {"0.0": STOPPED}),
    "withdrawn": ("2838899", Kind.CANCELLED, None, None, {}),
    "fenced": ("2838922", FENCED, 78, 8, {"0.0": FENCED}),
    "timelimit": ("2838891", Kind.UNKNOWN, None, 2, {"0.0": CRASHED}),
    "torn": ("2838916", DONE, 0, 6, {"0.0": DONE}),
    "here": ("local-20261125-135049-14739", DONE, 0, 6, {"0.0": DONE}),
    "sweep/end=done": ("2838910_0", DONE, 0, 6, {"0.0": DONE}),
    "sweep/end=raise": ("2838910_1", FAILED, 77, 2, {"0.0": FAILED}),
    "sweep/end=kill": ("2838910_2", CRASHED, 76, 2, {"0.0": CRASHED}),
}
"""Of each run: its job, how that ended by the records alone, its exit status, the last durable step, the attempts."""
SETUP = "2838895"
"""The job of the run `setup`: no rank of it started."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The folder of runs, as if it had been made here; the tests only read it."""
    made = tmp_path_factory.mktemp("before") / "jobs"
    shutil.copytree(RECORDED, made)
    for records in made.rglob("submissions.jsonl"):
        records.write_text(records.read_text().replace(HOME, str(made.parent)))
    for name, time in json.loads((RECORDED / "times.json").read_text()).items():
        os.utime(made / name, (time, time))
    return made


@pytest.fixture
def command(jobs, monkeypatch):
    """Return a function that runs `slurmddp` where Slurm is not, and returns what it printed."""
    monkeypatch.chdir(jobs.parent)
    monkeypatch.setenv("PATH", NO_SLURM["PATH"])

    def run(*words):
        done = CliRunner().invoke(group, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_read_as_it_ended(jobs, name):
    job_id, kind, status, step, attempts = RUNS[name]
    run = read_run(RunDir(jobs / name))
    (job,) = run.jobs
    assert (job.job_id, job.outcome.kind, job.outcome.status) == (job_id, kind, status)
    assert getattr(job.history.last("checkpoint"), "fields", {}).get("step") == step
    assert {attempt.name: attempt.outcome.kind for attempt in job.attempts} == attempts
    assert read_outline(run.folder).damage == (("events.jsonl: line 16 is cut off",) if name == "torn" else ())


def test_the_rank_that_decided_and_the_ways_back_are_on_record(jobs):
    (failed,) = read_run(RunDir(jobs / "failed")).jobs
    assert failed.outcome.reason.startswith("rank 1 on n1: ")
    records = read_records(RunDir(jobs / "failed").attempt(failed.job_id, "0.0"))
    assert [(end.rank, end.outcome.kind) for end in records] == [(1, FAILED), (0, CRASHED)]
    assert decisive_record(records).reason.startswith("ValueError: the batch has no labels")
    (killed,) = read_run(RunDir(jobs / "killed")).jobs
    assert len(killed.restarts) == 1 and killed.requeues == ()
    assert killed.outcome.reason.startswith("gives up: 2 starts in a row failed")
    (preempted,) = read_run(RunDir(jobs / "preempted")).jobs
    assert [why.split("received ")[1] for _, why in preempted.requeues] == [
        "at step 22 (preempted); saved step 22",
        "at step 30 (preempted); saved step 30",
    ]
    (cancelled,) = read_run(RunDir(jobs / "cancelled")).jobs
    assert cancelled.outcome.reason == "cancelled by `slurmddp cancel` (ada)"
    assert find_saved(RunDir(jobs / "done"), "").step == 6


@pytest.mark.parametrize(
    ("name", "job_id", "state", "exit_status", "kind"),
    [
        ("setup", SETUP, "FAILED", "127:0", FAILED),
        ("timelimit", "2838891", "TIMEOUT", "0:0", Kind.TIME_LIMIT),
        ("killed", "2838904", "FAILED", "76:0", CRASHED),
        ("stopped", "2838918", "FAILED", "75:0", STOPPED),
        ("withdrawn", "2838899", "CANCELLED", "0:0", Kind.CANCELLED),
    ],
)
def test_records_and_the_answer_of_slurm_go_together(jobs, name, job_id, state, exit_status, kind):
    said = JobInfo(job_id=job_id, state=state, source="sacct", exit_status=exit_status)
    (job,) = read_run(RunDir(jobs / name), {job_id: said}).jobs
    assert job.outcome.kind is kind


def test_status_shows_each_run(command):
    """Slurm is silent: a job without an end on record may still run."""
    found = {one["job_id"]: one for one in json.loads(command("status", "--json"))["jobs"]}
    expected = {job_id: (kind, step) for job_id, kind, _, step, _ in RUNS.values()} | {
        SETUP: (FAILED, None),
        "2838891": (Kind.RUNNING, 2),
        "2838916": (Kind.RUNNING, 6),
    }
    shown = {job: (one["outcome"], one["progress"]["checkpoint_step"]) for job, one in found.items()}
    assert shown == expected
    assert found[SETUP]["meaning"] == "set-up failed with status 127: module load nothing"
    assert (found["2838904"]["exit_status"], found["2838904"]["progress"]["step"]) == ("76:0", 3)
    assert found["2838901"]["submitted"] == "2026-11-25T13:49:35+00:00"


def test_sweep_results_show_each_setting(command):
    found = json.loads(command("sweep", "results", "sweep", "--json"))["results"]
    assert [(one["settings"], one["outcome"], one["done"], one["step"], one["total"]) for one in found] == [
        ({"end": "done"}, DONE, True, 6, 6),
        ({"end": "raise"}, FAILED, False, 3, 6),
        ({"end": "kill"}, CRASHED, False, 3, 6),
    ]
    assert [one["metrics"]["loss"] for one in found] == pytest.approx([4.534e-06, 1.771e-04, 1.771e-04], rel=1e-3)
    assert found[0]["last_line"] == "step 5 loss 0.0000"


def test_logs_show_the_ranks_of_each_attempt(command):
    lines = [json.loads(line) for line in command("logs", "preempted", "--attempt", "all", "--json").splitlines()]
    steps = [(line["attempt"], line["text"]) for line in lines if line["text"].startswith("step ")]
    assert [attempt for attempt, _ in steps] == ["0.0"] * 22 + ["1.0"] * 8
    assert steps[22][1] == "step 22 loss 0.0000"
    ends = [line["attempt"] for line in lines if line["source"] == "batch" and "ended with status" in line["text"]]
    assert ends == ["0.0", "1.0", "2.0"]
    merged = command("logs", "failed", "--all").splitlines()
    assert "rank 1 n1 | [rank1]: ValueError: the batch has no labels" in merged
    assert command("logs", "here").splitlines()[-1] == "step 5 loss 0.0000"


REPORTS = {
    "done": (DONE, (6, 6, 0), [("0.0", DONE, None)]),
    "failed": (FAILED, (3, 2, 0), [("0.0", FAILED, "exception")]),
    "killed": (CRASHED, (4, 2, 1), [("0.0", CRASHED, "rank-killed"), ("0.1", CRASHED, "rank-killed")]),
    "preempted": (DONE, (30, 30, 0), [("0.0", STOPPED, None), ("1.0", STOPPED, None), ("2.0", DONE, None)]),
    "stopped": (STOPPED, (10, 10, 0), [("0.0", STOPPED, None)]),
    "cancelled": (Kind.CANCELLED, (9, 9, 0), [("0.0", STOPPED, None)]),
    "withdrawn": (Kind.CANCELLED, (0, 0, 0), []),
    "fenced": (FENCED, (10, 8, 0), [("0.0", FENCED, None)]),
    "timelimit": (Kind.RUNNING, (3, 2, 0), [("0.0", CRASHED, "time-limit")]),
    "setup": (FAILED, (0, 0, 0), []),
    "torn": (Kind.RUNNING, (6, 6, 0), [("0.0", DONE, None)]),
    "here": (DONE, (6, 6, 0), [("0.0", DONE, None)]),
    "sweep/end=done": (DONE, (6, 6, 0), [("0.0", DONE, None)]),
    "sweep/end=raise": (FAILED, (3, 2, 0), [("0.0", FAILED, "exception")]),
    "sweep/end=kill": (CRASHED, (3, 2, 0), [("0.0", CRASHED, "rank-killed")]),
}
"""Of each run: the outcome, the steps taken, kept and repeated, and the attempts with their causes."""


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_counts_the_steps_of_each_attempt(jobs, name):
    outcome, (taken, kept, repeated), attempts = REPORTS[name]
    found = make_json(collect_report(RunDir(jobs / name), NO_SLURM, now=NOW))
    assert found["outcome"] == outcome
    assert found["steps"] == {"taken": taken, "kept": kept, "repeated": repeated}
    assert [(one["attempt"], one["outcome"], one["cause"]) for one in found["attempts"]] == attempts
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("name", "job_id", "cause", "rank", "host"),
    [
        ("done", "2838893", "none", None, ""),
        ("failed", "2838897", "exception", 1, "n1"),
        ("killed", "2838904", "rank-killed", 1, "n1"),
        ("preempted", "2838901", "none", None, ""),
        ("stopped", "2838918", "time-limit", None, ""),
        ("cancelled", "2838920", "cancelled", None, ""),
        ("setup", SETUP, "shell-setup", None, ""),
        ("torn", "2838916", "none", None, ""),
        ("here", "local-20261125-135049-14739", "none", None, ""),
        ("sweep", "2838910_1", "exception", 1, "n3"),
        ("sweep", "2838910_2", "rank-killed", 1, "n3"),
    ],
)
def test_diagnose_finds_the_cause(jobs, name, job_id, cause, rank, host):
    found = diagnose(RunDir(jobs / name), job_id, NO_SLURM)
    assert (found.cause, found.rank, found.host) == (cause, rank, host)
