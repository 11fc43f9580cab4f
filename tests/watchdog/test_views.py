"""What status, watch and diagnose show of a training that hangs."""

import json
import time

import pytest
from event_lines import event, write

from slurmddp.cli.status_format import format_job, format_jobs
from slurmddp.cli.watch.job_text import format_details
from slurmddp.diagnose.diagnosis import diagnose_attempt
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


def progress(run, content):
    run.progress("7", "0.0").parent.mkdir(parents=True, exist_ok=True)
    run.progress("7", "0.0").write_text(content)
    job = facts.read_job(
        run, "7", JobInfo(job_id="7", state="RUNNING", source="squeue"), history=history.read_outline(run)
    )
    return read_progress(run, job, now=time.time())


def test_a_job_that_hangs_shows_since_when_and_which_rank(run):
    found = progress(run, json.dumps({"time": 1.0, "stall": {"since": time.time() - 60, "text": TEXT}, "ranks": []}))
    job = JobStatus(job_id="7", run=run, name="r", outcome=outcome_of("RUNNING"), progress=found)
    (line,) = [line for line in format_job(job) if "no progress since" in line]
    assert line.split()[0] == "stalled" and "rank 3 on n2 in load()" in line
    assert "no progress since" in [*format_jobs([job])][1]
    assert f": {TEXT}" in str(format_details(job))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"stall": null}', '{"stall": 3}', '{"stall": {"since": "x", "text": 3}}']
)
def test_a_file_without_a_stall_or_a_damaged_one_shows_none(run, content):
    assert progress(run, content).stall is None


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
