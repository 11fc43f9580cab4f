"""How commands name runs: `--runs-dir` is a folder and the only one searched, a text is not empty, a word is a job."""

import json
import os
from pathlib import Path

import click.testing
import pytest

from slurmddp.cli import group
from slurmddp.cli.logs import newest_with_output, next_job
from slurmddp.cli.run_arguments import find_run, find_target
from slurmddp.errors import UsageError
from slurmddp.runs import lookup, registry
from slurmddp.runs.layout import RunDir


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Return a function that runs `slurmddp` as typed, without Slurm, beside a run `ok` with the job 17."""
    monkeypatch.setenv("PATH", "/nowhere")
    run = RunDir.named("jobs", "ok")
    run.create()
    run.submissions.write_text(json.dumps({"job": "17", "time": "2026-01-01T00:00:00Z"}) + "\n")
    registry.remember(tmp_path / "jobs")

    def call(*words):
        return click.testing.CliRunner().invoke(group, list(words), standalone_mode=False)

    return call


RUN_COMMANDS = ("status", "logs", "cancel", "requeue", "report", "diagnose", "compare", "tensorboard")


@pytest.mark.parametrize("command", RUN_COMMANDS)
def test_a_folder_of_runs_that_is_not_there_is_refused_by_every_command(typed, command):
    error = typed(command, "--runs-dir", "nosuch", "ok").exception
    assert isinstance(error, UsageError)
    assert str(error) == "--runs-dir: 'nosuch' is not a folder; give the one that has the runs"


@pytest.mark.parametrize(
    "command", ["status", "logs", "cancel", "requeue", "report", "diagnose", "compare", "tensorboard"]
)
def test_no_other_folder_is_searched_than_the_one_that_was_given(typed, command):
    Path("empty").mkdir()
    error = typed(command, "--runs-dir", "empty", "ok").exception
    assert isinstance(error, UsageError)
    assert "'ok' is not a job id, nor a submitted run in empty; `slurmddp status` lists the runs" in str(error)


def test_a_job_of_another_folder_is_of_no_run_in_the_one_that_was_given(typed):
    assert typed
    Path("empty").mkdir()
    assert lookup.find(["17"], registry.GivenFolder("empty")) == [lookup.Target(None, ("17",))]
    assert lookup.find(["17"], "empty")[0].name == "ok"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "--runs-dir", ""), "--runs-dir: an empty text"),
        (("status", ""), "RUN|JOBID: an empty text"),
        (("compare", "", "a"), "FILE|RUN: an empty text"),
        (("tensorboard", ""), "RUN: an empty text"),
        (("diagnose", ""), "RUN|JOBID|FILE: an empty text"),
        (("init", ""), "FILE: an empty text"),
    ],
)
def test_an_empty_text_is_refused(typed, words, said):
    error = typed(*words).exception
    assert isinstance(error, UsageError) and str(error) == f"{said} is not allowed; leave it out"
    assert list(Path().iterdir()) == [Path("jobs")]


def test_the_variable_or_the_file_that_names_no_folder_is_named(typed, monkeypatch):
    Path("ok.py").touch()
    Path("slurmddp.toml").write_text('runs-dir = "ok.py"\n')
    said = "'ok.py' is not a folder; give the one that has the runs"
    assert str(typed("status").exception) == f"{Path.cwd()}/slurmddp.toml: {said}"
    monkeypatch.setenv("SLURMDDP_RUNS_DIR", "nosuch")
    assert str(typed("status").exception) == f"SLURMDDP_RUNS_DIR: {said.replace('ok.py', 'nosuch')}"


def test_a_folder_that_only_a_file_names_may_come_later(typed):
    Path("slurmddp.toml").write_text('runs-dir = "later"\n')
    assert typed("status").stderr.startswith("there are no submitted runs in later; ")


@pytest.mark.parametrize("damage", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)])
def test_a_run_with_damaged_events_hides_no_other_and_is_shown(typed, damage, caplog):
    damage(RunDir.named("jobs", "ok").events)
    done = typed("status")
    assert done.stdout.splitlines()[1].split()[:3] == ["ok", "17", "UNKNOWN"]
    assert "jobs/ok/events.jsonl is not read: " in caplog.messages[0] and len(caplog.messages) == 1


def test_runs_that_may_not_be_read_are_counted(typed, monkeypatch):
    """Root may read everything: the answer of the system is a stand-in."""

    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(lookup, "read_end", refuse)
    done = typed("status")
    assert (done.return_value, done.stderr) == (0, "1 run in jobs cannot be read: Permission denied\n")


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
    with pytest.raises(UsageError, match="yet; --runs-dir"):  # it has no runs, as that of an executor's jobs
        meant()
    Path("r").mkdir()
    Path("r/submissions.jsonl").touch()
    with pytest.raises(
        UsageError, match=f"yet; `slurmddp status --runs-dir {Path.cwd()}` shows those of another folder"
    ):
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
