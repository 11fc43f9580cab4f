"""A folder that was moved keeps its jobs; a copy has none of them, also of a folder that was moved meanwhile."""

import json
import resource
import shutil
from pathlib import Path

import pytest

from slurmddp.config.job_spec import JobSpec
from slurmddp.runs import lookup
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.runs.submissions import Origin, read_origin, submissions
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo
from slurmddp.submission import compatibility, submit


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDir.named("my jobs", "train")
    run.create()
    record = {"job": "17", "directory": str(tmp_path), "folder": str(run.path), "inode": run.path.stat().st_ino}
    run.submissions.write_text(json.dumps(record) + "\n")
    return run


def came(path):
    run = RunDir(Path(path).absolute())
    return read_origin(run, submissions(run)[0])


def moved(run, to):
    run.path.rename(to)
    return to


def forget_inode(run):
    record = submissions(run)[0]
    del record["inode"]
    run.submissions.write_text(json.dumps(record) + "\n")


def test_a_folder_that_is_where_it_was_has_its_job(run):
    assert came(run.path) == Origin("train")
    Path("link").symlink_to("my jobs")
    assert came("link/train") == Origin("train")


@pytest.mark.parametrize("forget", [False, True])
def test_a_folder_that_was_moved_keeps_its_job(run, forget):
    if forget:
        forget_inode(run)
    to = moved(run, Path("elsewhere"))
    assert came(to) == Origin("train")
    run.logs.mkdir(parents=True)
    assert came(to) == Origin("train"), "the job has made the old folder anew"


def test_a_copy_has_no_job(run):
    shutil.copytree(run.path, "copy")
    Path("other").mkdir()
    shutil.copytree(run.path, "other/train")
    assert came("copy").elsewhere == came("other/train").elsewhere == run.path


def test_a_copy_of_a_folder_that_was_moved_has_no_job(run):
    to = moved(run, Path("elsewhere"))
    shutil.copytree(to, "copy")
    assert (came(to).elsewhere, came("copy").elsewhere) == (None, run.path)


@pytest.mark.parametrize(
    ("folder", "name"), [(None, "elsewhere"), ("", "elsewhere"), (7, "elsewhere"), ("a\0b", "a\0b")]
)
def test_a_folder_whose_record_does_not_say_where_it_was_has_its_job(run, folder, name):
    to = RunDir(moved(run, Path("elsewhere")).absolute())
    assert read_origin(to, submissions(to)[0] | {"folder": folder}) == Origin(name)


def test_a_copy_may_have_a_job_of_its_own_while_the_originals_runs(run, monkeypatch):
    monkeypatch.setattr(queries, "jobs", lambda *_: [JobInfo(job_id="17", state="RUNNING", source="squeue")])
    monkeypatch.setattr(queries, "script_digest", lambda *_: None)
    run.owner.write_text("cluster 17 0.0\n")
    copy = RunDir(Path(shutil.copytree(run.path, "copy")).absolute())
    assert [job.job_id for job in compatibility.active_jobs(run, {}, JobSpec(job_name="train"))] == ["17"]
    assert compatibility.active_jobs(copy, {}, JobSpec(job_name="train")) == []
    for one in (run, copy):
        submit._remove_copied_owner(one)
    assert (run.owner.exists(), copy.owner.exists()) == (True, False)


def test_a_job_that_is_named_by_its_number_is_of_no_copy(run):
    shutil.copytree(run.path, "copies/train")
    assert lookup.find(["17"], "copies") == [Target(None, ("17",))]
    assert lookup.find(["17"], "my jobs") == [Target(run, ("17",))]


def test_a_record_that_a_full_disk_cuts_off_is_an_error(run):
    """The kernel writes what fits, and reports no error; so it does at a limit of the size of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (run.submissions.stat().st_size + 5, hard))
    try:
        with pytest.raises(OSError, match="No space left on device") as raised:
            append_record(run.submissions, {"job": "18"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(run.submissions)
    assert [record["job"] for record in submissions(run)] == ["17"]
