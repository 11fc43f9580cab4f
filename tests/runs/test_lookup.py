"""Runs and jobs by the words that people type."""

import json
import os
import shutil
from pathlib import Path

import pytest

from slurmddp.errors import UsageError
from slurmddp.runs import lookup, registry
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    submit("mnist", "5", "2026-01-01T00:00:00+00:00")
    submit("mnist", "7", "2026-01-02T00:00:00+00:00")
    submit("gpt", "9", "2026-01-03T00:00:00+00:00")
    (tmp_path / "jobs" / "empty").mkdir()
    (tmp_path / "jobs" / "recipe.toml").touch()


def submit(name, job, time):
    run = RunDir.named("jobs", name)
    run.create()
    with run.submissions.open("a") as file:
        own = {"folder": str(run.path), "inode": run.path.stat().st_ino}
        file.write(json.dumps({"job": job, "time": time, **own}) + "\n")


def meant(*words, runs_dir="jobs"):
    return [(found.run and found.run.path.name, found.jobs) for found in lookup.find(words, runs_dir)]


def test_a_name_or_its_folder_means_all_its_jobs_an_id_one_and_no_word_every_run():
    assert meant() == [("gpt", ("9",)), ("mnist", ("5", "7"))]
    assert meant(runs_dir="nothing") == []
    assert meant("mnist") == meant("jobs/mnist") == meant("jobs/mnist/") == [("mnist", ("5", "7"))]
    assert meant("5", "9") == [("mnist", ("5",)), ("gpt", ("9",))]
    assert meant("9_3") == [("gpt", ("9_3",))], "a task of an array is of its array's run"


@pytest.mark.parametrize("content", [b"{broken\n", b"[]", b"\xff\x00"])
def test_a_run_whose_record_is_damaged_says_so(content):
    RunDir.named("jobs", "mnist").submissions.write_bytes(content)
    with pytest.raises(UsageError, match=r"^run mnist: \S+/mnist/submissions.jsonl is damaged, .* in \S+/mnist/logs$"):
        lookup.find(["mnist"], "jobs")


def test_an_id_that_slurm_gave_again_means_the_newest():
    submit("gpt", "5", "2026-02-01T00:00:00+00:00")
    assert meant("5") == [("gpt", ("5",))]


def test_a_job_is_of_the_run_that_it_was_submitted_for_not_of_a_copy(tmp_path):
    for name in ("a", "z"):
        shutil.copytree(tmp_path / "jobs" / "mnist", tmp_path / "jobs" / name)
    assert meant("7") == [("mnist", ("7",))]


def test_a_job_is_of_the_run_that_was_moved_not_of_a_copy_made_since():
    run = RunDir.named("jobs", "mnist")
    submit("mnist", "8", "2026-01-04T00:00:00+00:00")
    run.path.rename("jobs/moved")
    for name in ("a", "z"):
        shutil.copytree("jobs/moved", f"jobs/{name}")
    assert meant("8") == [("moved", ("8",))]


def test_records_that_nobody_can_have_written_hide_no_run():
    with RunDir.named("jobs", "gpt").submissions.open("a") as file:
        file.write("[" * 100_000 + '\n{"job": 11}\n{"job": "\u0661"}\n')
    assert meant("gpt") == [("gpt", ("9", "11"))]


@pytest.fixture
def of_somebody_else(monkeypatch):
    """Root may read everything: the answer of the system for the run gpt is a stand-in."""
    may, opened = os.access, os.open

    def answer(path, *args, **named):
        if "gpt" in str(path):
            raise PermissionError(path)
        return opened(path, *args, **named)

    monkeypatch.setattr(os, "access", lambda path, mode: "gpt" not in str(path) and may(path, mode))
    monkeypatch.setattr(os, "open", answer)


@pytest.mark.usefixtures("of_somebody_else")
def test_a_run_of_somebody_else_hides_no_other():
    assert meant() == [("mnist", ("5", "7"))]
    assert len(lookup.survey("jobs").unreadable) == 1


@pytest.mark.usefixtures("of_somebody_else")
def test_a_folder_of_somebody_else_hides_no_run_of_this_machine():
    RunDir.named("jobs", "here").attempt("local-1", "0.0").mkdir(parents=True)
    found = lookup.find([], "jobs", local=True)
    assert [one.name for one in found] == ["mnist", "here"]


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to(path)])
def test_what_is_no_run_hides_none(make):
    make(Path("jobs", "other"))
    assert [one.name for one in lookup.find([], "jobs", local=True)] == ["gpt", "mnist"]


def test_what_is_for_slurms_jobs_says_so_of_a_run_of_this_machine():
    RunDir.named("jobs", "here").attempt("local-1", "0.0").mkdir(parents=True)
    with pytest.raises(UsageError, match="'here' has only run on this machine, by `slurmddp run`: Slurm has no job"):
        lookup.find(["here"], "jobs")


def test_a_job_of_no_run_here_is_still_a_job():
    assert meant("1234") == [(None, ("1234",))]
    assert lookup.find(["1234"], "jobs")[0].name == "1234"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("mnits", "did you mean mnist?"),
        ("empty", "slurmddp status"),
        ("a/b", "nor a submitted run"),
        ("..", "nor a submitted run"),
    ],
)
def test_a_name_that_no_run_has_is_refused(word, hint):
    with pytest.raises(UsageError, match=hint):
        lookup.find([word], "jobs")


@pytest.fixture
def sweep():
    run = RunDir.named("jobs", "sweep")
    run.create()
    for job, settings in (("20", ({"lr": "1"}, {"lr": "2"})), ("21", ({"lr": "2"}, {"lr": "3"}))):
        append_record(run.submissions, {"job": job, "time": f"2026-03-{job}", "settings": settings})
    (run.path / "lr=2").mkdir()
    return run


@pytest.mark.usefixtures("sweep")
def test_a_setting_of_a_sweep_is_a_run_of_its_own():
    assert meant("21_0") == [("lr=2", ("21_0",))]
    assert meant("sweep/lr=2") == meant("jobs/sweep/lr=2/") == [("lr=2", ("20_1", "21_0"))]
    assert meant("sweep/lr=1") == [("lr=1", ("20_0",))] and not Path("jobs/sweep/lr=1").exists(), "it waits"
    assert meant("sweep") == [("sweep", ("20", "21"))]
    assert meant("21_9") == [("sweep", ("21_9",))], "a task that the sweep has not"
    with pytest.raises(UsageError, match="nor a submitted run"):
        lookup.find(["sweep/lr=9"], "jobs")


def test_a_sweep_is_its_settings_each_in_the_job_that_it_was_last_in(sweep):
    found = lookup.settings(lookup.find(["sweep"], "jobs")[0])
    assert [(one.run.path.name, one.jobs) for one in found] == [
        ("lr=1", ("20_0",)),
        ("lr=2", ("21_0",)),
        ("lr=3", ("21_1",)),
    ]
    assert found[0].run.sweep == sweep and found[0].run.job_name == "sweep"
    (whole,) = lookup.find(["mnist"], "jobs")
    assert lookup.settings(whole) == [whole] and whole.run.sweep is None


@pytest.mark.usefixtures("sweep")
def test_where_one_is_wanted_a_sweep_asks_for_a_setting():
    assert lookup.require_one(*lookup.find(["sweep/lr=2"], "jobs")).run.path.name == "lr=2"
    assert lookup.require_one(*lookup.find(["mnist"], "jobs")).jobs == ("5", "7")
    with pytest.raises(UsageError, match="a sweep of 3 settings; name one, as in 'sweep/lr=1'"):
        lookup.require_one(*lookup.find(["sweep"], "jobs"))


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b'{"job": "5", "ti'])
def test_a_run_whose_record_is_damaged_is_left_out_with_a_warning(content, caplog):
    path = RunDir.named("jobs", "mnist").submissions
    path.write_bytes(content)
    assert meant() == meant() == [("gpt", ("9",))]
    assert caplog.messages == [f"run mnist is left out: {path} is damaged"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_run_whose_record_is_not_a_file_is_left_out_with_a_warning(make, caplog):
    path = RunDir.named("jobs", "mnist").submissions
    path.unlink()
    make(path)
    assert meant() == [("gpt", ("9",))]
    assert caplog.messages == [f"run mnist is left out: {path}: not a regular file"]
    with pytest.raises(UsageError, match="^run mnist: .* is damaged, and its jobs are not known"):
        lookup.find(["mnist"], "jobs")


def remembered(folder: Path, name: str, job: str) -> RunDir:
    run = RunDir(folder / name)
    run.path.mkdir(parents=True)
    run.submissions.write_text(json.dumps({"job": job, "time": "2026-01-01T00:00:00Z"}) + "\n")
    registry.remember(folder)
    return run


def test_a_run_in_another_folder_is_found_by_its_name_and_its_job(tmp_path, monkeypatch):
    run = remembered(tmp_path / "a" / "jobs", "train", "17")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert lookup.find(["train", "17"], "jobs") == [lookup.Target(run, ("17",))] * 2
    with pytest.raises(UsageError, match="'other' is not a job id, nor a submitted run"):
        lookup.find(["other"], "jobs")


def test_a_name_in_several_folders_is_a_question(tmp_path, monkeypatch):
    first, second = (remembered(tmp_path / name, "train", "17") for name in "ab")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is a run in several folders") as caught:
        lookup.find(["train"], "jobs")
    assert str(first.path) in str(caught.value) and str(second.path) in str(caught.value)
    assert lookup.find(["b/train"], "jobs")[0].run.path == second.path


def test_of_very_many_folders_three_are_named(tmp_path, monkeypatch):
    for number in range(23):
        remembered(tmp_path / str(number), "train", "17")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"name one of these: \S+/22/train, \S+/21/train, \S+/20/train and 20 more$"):
        lookup.find(["train"], "jobs")


def test_folders_are_remembered_once_the_newest_first_and_forgotten_when_they_are_gone(tmp_path):
    folders = [tmp_path / name for name in ("a", "b\udcff", "c")]
    for folder in [*folders, folders[0]]:
        folder.mkdir(exist_ok=True)
        registry.remember(folder)
    folders[2].rmdir()
    assert registry.known_folders() == [folders[0], folders[1]]


def test_a_home_that_cannot_be_written_to_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    registry.remember(tmp_path)
    assert registry.known_folders() == []
