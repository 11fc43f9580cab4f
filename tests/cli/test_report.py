"""`slurmddp report`: the choice of the run, the file of the page, stdout."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import typed

from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir

RECORDED = Path(__file__).parent.parent / "report" / "recorded" / "fashion"


@pytest.fixture
def report(tmp_path):
    """Return a function that runs the command in a folder with one recorded run, without Slurm."""
    shutil.copytree(RECORDED, tmp_path / "jobs" / "fashion")

    return lambda *words: typed("report", *words, cwd=tmp_path)


def test_the_page_is_in_the_runs_folder_and_stdout_is_its_path(report, tmp_path):
    done = report()
    path = tmp_path / "jobs" / "fashion" / "report.html"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}\n", "")
    assert path.read_text().startswith("<!doctype html>")


def test_a_run_is_named_by_its_job_and_the_figures_are_json(report, tmp_path):
    found = json.loads(report("fashion", "--json").stdout)
    assert (found["name"], found["requeues"], found["restarts"], found["checkpoints"]) == ("fashion", 1, 1, 29)
    page = tmp_path / "jobs" / "fashion" / "report.html"
    assert not page.exists()
    assert report("2807912").returncode == 0
    assert "2807912, 2807915" in page.read_text()


def test_without_a_run_it_is_the_one_that_was_submitted_last(report, tmp_path):
    for name, time in (("older", "2026-11-20T10:00:00+00:00"), ("torn", "no time")):
        run = RunDir(tmp_path / "jobs" / name)
        run.path.mkdir()
        append_record(run.submissions, {"job": "7", "time": time})
    assert json.loads(report("--json").stdout)["name"] == "fashion"


def test_a_sweep_that_was_submitted_last_has_a_page_of_its_settings(report, tmp_path):
    (tmp_path / "jobs" / "many").mkdir()
    record = {"job": "9", "time": "2099-01-01T00:00:00+00:00", "settings": [{"a": "1"}, {"a": "2"}]}
    append_record(tmp_path / "jobs/many/submissions.jsonl", record)
    assert report().stdout == f"{tmp_path / 'jobs' / 'many' / 'report.html'}\n"
    assert [row["name"] for row in json.loads(report("--json").stdout)["runs"]] == ["a=1", "a=2"]
    assert json.loads(report("many/a=1", "--json").stdout)["name"] == "a=1"


@pytest.mark.parametrize("job", ["local-1", "manual"])
@pytest.mark.parametrize("word", ["here", "./jobs/here"])
def test_a_run_without_slurm_has_a_page_too(report, tmp_path, word, job):
    run = RunDir(tmp_path / "jobs" / "here")
    run.attempt(job, "0.0").mkdir(parents=True)
    append_record(run.events, {"time": 1.0, "event": "start", "job": job, "attempt": "0.0", "rank": 0, "host": "a"})
    assert json.loads(report(word, "--json").stdout)["attempts"][0]["job_id"] == job


def test_a_wrong_name_is_one_line(report):
    done = report("fashio")
    assert done.returncode == 2 and done.stdout == ""
    assert "did you mean fashion?" in done.stderr and done.stderr.count("\n") == 1
