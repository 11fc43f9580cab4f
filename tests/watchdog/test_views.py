"""What status, watch and diagnose show of a training that hangs."""

import os
import time

import pytest
from event_lines import event, write

from slurmddp.cli.status_format import format_job, format_jobs
from slurmddp.cli.watch.widgets import format_details
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
    (line,) = [line for line in format_job(shown) if "  hung  " in line]
    assert "since 19" in line and "rank 3 on n2 in load()" in line
    assert "hung since 19" in format_jobs([shown])[1]
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
    for number, node in ((0, "n1"), (3, "n2")):
        record = run.rank_record("7", "0.0", number)
        record.write_text(f"76 rank {number} on {node}: the training hung; slurmddp saved nothing\n")
        os.utime(record, (8, 8))  # before the attempt ends
    write(run, event("attempt_end", 9, status=76, reason=f"hung for 45s: {text}"))
    found = diagnose_attempt(run, "7", "0.0", history.read_outline(run).of_job("7").supervision)
    assert (found.cause, found.rank, found.host) == ("hung", rank, host)
    assert found.what == f"the training hung for 45s, and its ranks were ended: {text}"


CPUS = {"0": ["n1", 1.0, 2e9], "1": ["n2", 3.0, 4e9]}
GPUS = {"0": ["n1", 1.0, 2e9, 0.9, 60e9, 80e9, 400.0], "1": ["n2", 3.0, 4e9, 0.02, 62e9, 80e9, 300.0]}


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (CPUS, "2.0 CPUs and 3.0 GB a rank"),
        (GPUS, "GPUs 46% busy (that of rank 1 on n2 2%), 61.0 of 80 GB, 350 W; 2.0 CPUs and 3.0 GB a rank"),
    ],
)
def test_what_the_ranks_use_is_shown(run, ranks, words):
    write(run, event("usage", 2, ranks=ranks))
    found = read_progress(run, job(run), now=time.time())
    shown = JobStatus(job_id="7", run=run, name="r", outcome=outcome_of("RUNNING"), progress=found)
    assert words in " ".join(" ".join(format_job(shown)).split()) and words in str(format_details(shown))


@pytest.mark.parametrize("ranks", [None, 3, {}, {"0": []}, {"0": ["n1", "x", 2]}, {"0": ["n1", 1, 2, 0.5]}, {"0": 3}])
def test_a_damaged_record_of_what_is_used_shows_nothing(run, ranks):
    write(run, event("usage", 2, ranks=ranks))
    assert read_progress(run, job(run), now=time.time()).use == ""
