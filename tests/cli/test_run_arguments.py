"""How commands name runs: `--runs-dir` is a folder and the only one searched, and a text is not empty."""

import json
import os
from pathlib import Path

import click.testing
import pytest

from slurmddp.cli import group
from slurmddp.errors import UsageError
from slurmddp.runs import lookup, registry
from slurmddp.runs.layout import RunDir


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Return a function that runs `slurmddp` as typed, without Slurm, beside a run `ok` with the job 17."""
    monkeypatch.chdir(tmp_path)
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


@pytest.mark.parametrize("command", ["status", "logs", "cancel", "requeue", "report", "diagnose"])
def test_no_other_folder_is_searched_than_the_one_that_was_given(typed, command):
    Path("empty").mkdir()
    error = typed(command, "--runs-dir", "empty", "ok").exception
    assert isinstance(error, UsageError)
    assert "'ok' is not a job id, nor a submitted run in empty; `slurmddp status` lists the runs" in str(error)


@pytest.mark.parametrize("command", ["compare", "tensorboard"])
def test_a_folder_beside_the_given_one_is_not_meant_by_its_name_alone(typed, command):
    for folder in ("empty", "ok"):
        Path(folder).mkdir()
    assert "in empty; give one of them, or --runs-dir" in str(typed(command, "--runs-dir", "empty", "ok").exception)
    assert lookup.find_folder("./ok", registry.GivenFolder("empty")) == Path("ok")


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
        (("requeue", "-x", "", "ok"), "--exclude: an empty text"),
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

    monkeypatch.setattr(lookup, "open_regular", refuse)
    done = typed("status")
    assert (done.return_value, done.stderr) == (0, "1 run in jobs cannot be read: Permission denied\n")
