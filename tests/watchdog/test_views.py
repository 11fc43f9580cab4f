"""What status, watch and diagnose show of a training that hangs."""

import time

import pytest
from event_lines import event, write

from slurmddp.cli.status_format import format_job, format_jobs
from slurmddp.cli.watch.job_text import format_details
from slurmddp.diagnose.diagnosis import diagnose_attempt
from slurmddp.diagnose.running import describe_activity
from slurmddp.monitoring.status import JobStatus
from slurmddp.monitoring.status.job_status import read_progress
from slurmddp.runs import facts, history
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import outcome_of

TEXT = "rank 3 on n2 in load() at data.py:40, while 7 ranks waited in all_reduce"


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    write(made, event("attempt_start", 1, nodes="n1", log_offset=0))
    return made


def job(run):
    slurm = JobInfo(job_id="7", state="RUNNING", source="squeue")
    return facts.read_job(run, "7", slurm, history=history.read_outline(run))


def hang(run, at):
    write(run, event("hang", at, reason=TEXT, stalled_s=60.0, hung_ranks=[3], hung_hosts=["n2"], ends=False))


def test_a_job_that_hangs_shows_since_when_and_which_rank(run):
    hang(run, 2)
    found = read_progress(run, job(run), now=time.time())
    shown = JobStatus(job_id="7", run=run, name="r", outcome=outcome_of("RUNNING"), progress=found)
    (line,) = [line for line in format_job(shown) if "no progress since" in line]
    assert line.split()[0] == "stalled" and "rank 3 on n2 in load()" in line
    assert "no progress since" in [*format_jobs([shown])][1]
    assert f": {TEXT}" in str(format_details(shown))
    does = describe_activity(job(run).attempts[-1].events, run.path)
    assert (does.cause, does.sure) == ("hanging", "likely")
    assert does.what.endswith(f": {TEXT}")


def test_a_hang_that_is_over_is_not_shown(run):
    hang(run, 2)
    write(run, event("hang_end", 3))
    assert read_progress(run, job(run), now=time.time()).stall is None
    assert describe_activity(job(run).attempts[-1].events, run.path).cause == "running"


@pytest.mark.parametrize(
    ("text", "rank", "host"), [(TEXT, 3, "n2"), ("no rank stands out: ranks 0-1 waiting in barrier", None, "")]
)
def test_the_cause_of_an_attempt_that_was_ended_for_it_is_the_hang(run, text, rank, host):
    folder = run.attempt("7", "0.0")
    folder.mkdir(parents=True)
    write(run, event("attempt_end", 9, status=76, reason=f"hung for 45s: {text}"))
    found = diagnose_attempt(run, "7", "0.0", history.read_outline(run).of_job("7").supervision)
    assert (found.cause, found.rank, found.host) == ("hung", rank, host)
    assert found.what == f"the training hung for 45s, and its ranks were ended: {text}"


GPUS = {"gpus": 4, "gpu_busy": 0.46, "gpu_least_rank": 3, "gpu_least_host": "n2", "gpu_watts": 400.4} | {
    "gpu_memory_bytes": 61_000_000_000, "gpu_total_bytes": 80_000_000_000
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "2.0 CPUs and up to 3.0 GB a rank"),
        (
            {**GPUS, "gpu_least_busy": 0.4},
            "GPUs 46% busy (that of rank 3 on n2 40%), up to 61.0 GB of 80.0 GB, 400 W",
        ),
        ({**GPUS, "gpu_least_busy": 0.02}, "(that of rank 3 on n2 2%, which is idle)"),
    ],
)
def test_what_the_ranks_use_is_shown(run, fields, words):
    write(run, event("usage", 2, cpus=2.0, memory_bytes=3_000_000_000, **fields))
    found = read_progress(run, job(run), now=time.time())
    shown = JobStatus(job_id="7", run=run, name="r", outcome=outcome_of("RUNNING"), progress=found)
    assert words in " ".join(" ".join(format_job(shown)).split()) and words in str(format_details(shown))


def test_a_damaged_record_of_what_is_used_is_shown_as_nothing(run):
    write(run, event("usage", 2, cpus="x", gpus="y"))
    assert read_progress(run, job(run), now=time.time()).use == "0.0 CPUs and up to 0.0 GB a rank"
