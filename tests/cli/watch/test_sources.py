"""The files of a run while they grow, and after they were replaced."""

from unittest.mock import Mock

import pytest

from slurmddp.cli.watch import sources
from slurmddp.cli.watch.sources import read_files
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.states import outcome_of


@pytest.fixture
def job(tmp_path):
    run = RunDir(tmp_path / "r")
    run.create()
    return JobStatus(job_id="7", run=run, name="r", outcome=outcome_of("RUNNING"))


def log(job, step, loss):
    head = {"time": float(step), "event": "metrics", "job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}
    append_record(job.run.events, {**head, "step": step, "total": 10, "values": {"loss": loss}})


def test_a_repeated_step_counts_once(job):
    for step, loss in ((1, 0.5), (2, 0.4), (3, 0.3), (2, "nan"), (3, 0.2)):
        log(job, step, loss)
    view = read_files(job, 0)
    assert [step for step, _ in view.loss] == [1, 2, 3] and view.loss[-1] == (3, 0.2) and view.rate == ()


def test_new_records_are_added_and_a_new_file_replaces_the_old_one(job):
    log(job, 1, 0.5)
    assert read_files(job, 0).loss == ((1, 0.5),)
    log(job, 2, 0.4)
    assert read_files(job, 0).loss == ((1, 0.5), (2, 0.4))
    job.run.events.unlink()
    read_files(job, 0)
    log(job, 7, 0.1)
    view = read_files(job, 0)
    assert view.loss == ((7, 0.1),) and view.progress.step == 7


def test_files_that_cannot_be_read_are_reported(job, monkeypatch):
    denied = PermissionError(13, "Permission denied", "events.jsonl")
    monkeypatch.setattr(sources, "file_size", Mock(side_effect=denied))
    assert read_files(job, 0).output == ("[Errno 13] Permission denied: 'events.jsonl'",)
