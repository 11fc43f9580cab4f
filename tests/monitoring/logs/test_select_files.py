"""Which job's output is meant."""

import json
from pathlib import Path

import pytest

from slurmddp.errors import UsageError
from slurmddp.monitoring.logs.select_files import find_run, find_target, newest_with_output, next_job
from slurmddp.runs import registry
from slurmddp.runs.layout import RunDir


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def submit(name, job, time, *, prints=True, task="", after=None):
    run = RunDir.named("jobs", name)
    run.create()
    with run.submissions.open("a") as file:
        file.write(json.dumps({"job": job, "time": time, "after": after}) + "\n")
    if prints:
        run.batch_log(job + task).write_text("x\n")


def meant(word=None):
    found = find_target(word, "jobs")
    return found.run.path.name, newest_with_output(found.run, found.jobs)


def test_no_word_means_the_run_that_was_submitted_last():
    submit("b", "5", "2026-01-03T00:00:00+00:00")
    submit("a", "7", "2026-01-02T00:00:00+00:00")
    assert meant() == ("b", "5")


def test_of_a_run_it_is_the_newest_job_that_has_printed_something():
    submit("a", "5", "2026-01-01T00:00:00+00:00")
    submit("a", "7", "2026-01-02T00:00:00+00:00", prints=False)
    assert meant("a") == ("a", "5")
    assert meant("7") == ("a", "7")
    with pytest.raises(UsageError, match="'' is not a job id"):
        meant("")


def test_an_array_is_no_one_job():
    submit("a", "5", "2026-01-01T00:00:00+00:00", task="_2")
    assert meant("5_2") == ("a", "5_2")
    RunDir.named("jobs", "a").batch_log("5_10").touch()
    for word in ("a", "5", None):
        with pytest.raises(UsageError, match="job 5 is an array; give one task of it, as in 5_10"):
            meant(word)


def test_a_job_of_no_run_here_has_no_output_here():
    with pytest.raises(UsageError, match="job '99' is of no run in jobs; --runs-dir"):
        find_run("99", "jobs")


def test_where_nothing_was_submitted_there_is_nothing_to_show():
    with pytest.raises(UsageError, match="nothing was submitted in jobs yet; --runs-dir"):
        meant()
    registry.remember(Path.cwd())
    with pytest.raises(UsageError, match="yet; `slurmddp status --all-folders` shows those of 1 other folder"):
        meant()


def test_a_run_of_this_machine_alone_has_output_too():
    for name, job in (("here", "local-20260101-000000-7"), ("2026", "local-20260102-000000-5")):
        RunDir.named("jobs", name).attempt(job, "0.0").mkdir(parents=True)
    assert meant("here") == ("here", "local-20260101-000000-7")
    assert meant() == ("2026", "local-20260102-000000-5")
    assert meant("local-20260101-000000-7") == ("here", "local-20260101-000000-7")
    submit("a", "5", "2026-01-01T00:00:00+00:00")
    assert meant() == ("a", "5")


def test_a_run_goes_on_in_its_next_job_and_a_job_that_was_named_does_not():
    for job in ("5", "7", "9"):
        submit("a", job, "2026-01-01T00:00:00+00:00")
    run = find_run("a", "jobs")
    assert [next_job("a", run, job) for job in ("5", "7", "9", "11")] == ["7", "9", "", ""]
    assert (next_job(None, run, "5"), next_job("5", run, "5")) == ("7", "")


def test_while_none_has_printed_anything_it_is_the_first_of_the_last_submission():
    for job, after in (("5", None), ("7", None), ("9", "7")):
        submit("a", job, "2026-01-01T00:00:00+00:00", prints=False, after=after)
    assert meant("a") == ("a", "7")
