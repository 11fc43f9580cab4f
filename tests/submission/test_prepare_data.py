"""The job's Python looks for a task's data before the queue; what it lacks is one line."""

import sys
from pathlib import Path

import pytest

from slurmddp.config.job_spec import JobSpec
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.submission.prepare_data import prepare

MODULE = """
from pathlib import Path
from slurmddp.errors import UsageError
from slurmddp.worker.task import Task

class Mine(Task):
    model = losses = None

    @classmethod
    def prepare(cls, options):
        print("fetching", options.data)
        if options.data == "bug":
            raise ValueError("mine")
        if options.data == "none":
            raise UsageError("there are no hills")
        Path("fetched").write_text(options.data)
"""


def job(**values) -> JobSpec:
    return JobSpec(job_name="x", **values)


def own(data: str, **values) -> JobSpec:
    return job(worker=WorkerOptions(task="hills:Mine", data=data), **values)


@pytest.fixture
def hills(tmp_path, monkeypatch):
    """A working folder with a task of the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hills.py").write_text(MODULE)
    return tmp_path


def test_an_own_tasks_prepare_is_called_once_here(hills, capfd):
    """What it prints goes to standard error: the job's id stands alone on standard output."""
    prepare(own("rolling"))
    assert (hills / "fetched").read_text() == "rolling"
    said = capfd.readouterr()
    assert ("fetching rolling" in said.err, said.out) == (True, "")


@pytest.mark.usefixtures("hills")
@pytest.mark.parametrize(
    ("spec", "message", "shown"),
    [
        (own("none"), "^there are no hills$", ""),
        (own("bug"), "--task hills:Mine: looking for it and its data failed; see above", "ValueError: mine"),
        (job(worker=WorkerOptions(task="valleys:Mine")), "there is no module valleys in .* nor among those", ""),
        (own("rolling", python="/nowhere/python"), "--python /nowhere/python cannot be started: No such file", ""),
    ],
    ids=["data", "bug", "module", "python"],
)
def test_what_is_missing_is_one_line_and_an_error_of_the_task_is_shown_whole(spec, message, shown, capfd):
    with pytest.raises(UsageError, match=message):
        prepare(spec)
    said = capfd.readouterr().err
    assert ("Traceback" in said) == bool(shown) and shown in said


@pytest.mark.parametrize(
    "values",
    [
        {"command": ("train.py",)},
        {"worker": WorkerOptions(task="gpt", data="synthetic")},
        {"conda": "theirs"},
        {"venv": "theirs"},
        {"module": ("python",)},
        {"setup": ("true",)},
        {"setup_file": "site.sh"},
    ],
)
def test_nothing_is_started_where_this_python_cannot_know(values):
    """A COMMAND, a bundled task, and a job that makes itself another environment."""
    spec = {"worker": WorkerOptions(task="none:None"), "python": "/nowhere/python"} | values
    prepare(job(**spec))


def test_the_jobs_python_is_asked(hills):
    python = hills / "python"
    python.write_text(f'#!/bin/bash\ntouch asked\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    prepare(own("rolling", python=str(python)))
    assert Path("asked").exists()
