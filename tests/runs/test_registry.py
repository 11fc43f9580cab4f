"""A run is found from any working directory."""

import json
from pathlib import Path

import pytest

from slurmddp.errors import UsageError
from slurmddp.runs import lookup, registry
from slurmddp.runs.layout import RunDir


def made(folder: Path, name: str, job: str) -> RunDir:
    run = RunDir(folder / name)
    run.path.mkdir(parents=True)
    run.submissions.write_text(json.dumps({"job": job, "time": "2026-01-01T00:00:00Z"}) + "\n")
    registry.remember(folder)
    return run


def test_a_run_in_another_folder_is_found_by_its_name_and_its_job(tmp_path, monkeypatch):
    run = made(tmp_path / "a" / "jobs", "train", "17")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert lookup.find(["train", "17"], "jobs") == [lookup.Target(run, ("17",))] * 2
    with pytest.raises(UsageError, match="'other' is not a job id, nor a submitted run"):
        lookup.find(["other"], "jobs")


def test_a_name_in_several_folders_is_a_question(tmp_path, monkeypatch):
    first, second = (made(tmp_path / name, "train", "17") for name in "ab")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is a run in several folders") as caught:
        lookup.find(["train"], "jobs")
    assert str(first.path) in str(caught.value) and str(second.path) in str(caught.value)
    assert lookup.find(["b/train"], "jobs")[0].run.path == second.path


def test_of_very_many_folders_three_are_named(tmp_path, monkeypatch):
    for number in range(23):
        made(tmp_path / str(number), "train", "17")
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
