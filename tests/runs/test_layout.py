"""A run's files have one name each, and are whole or absent."""

import errno
import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.errors import UsageError
from slurmddp.runs import files, layout, ownership
from slurmddp.runs.files import append_record, read_records, write_whole
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import hold_submission


def test_a_new_folder_is_private_and_ignored_by_git(tmp_path):
    run = RunDir(tmp_path / "jobs" / "x")
    assert run.create() == tmp_path / "jobs"
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert (run.path / ".gitignore").read_text() == "*\n"
    (run.path / ".gitignore").unlink()
    assert run.create() is None
    assert (run.path / ".gitignore").read_text() == "*\n"


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(layout, "write_whole", full)
    with pytest.raises(
        UsageError, match="cannot be made: No space left on device; choose another folder by --runs-dir"
    ):
        RunDir(tmp_path / "jobs" / "x").create()
    assert list(tmp_path.iterdir()) == []


def test_a_file_among_the_folders_is_an_error_and_stays(tmp_path):
    (tmp_path / "jobs").write_text("mine")
    run = RunDir(tmp_path / "jobs" / "x")
    assert list(read_records(run.submissions)) == []
    with pytest.raises(UsageError, match="/jobs is a file, not a folder; choose another --runs-dir"):
        run.create()
    with pytest.raises(UsageError, match="/jobs is a file, not a folder; choose another --name"):
        RunDir(tmp_path / "jobs").create()
    assert (tmp_path / "jobs").read_text() == "mine"


def test_a_failed_write_names_its_file(tmp_path, monkeypatch):
    """The errors of os.write and os.fsync have no name. They stand for a full disk."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        append_record(tmp_path / "a.jsonl", {})
    assert raised.value.filename == str(tmp_path / "a.jsonl")
    with pytest.raises(OSError, match="No space left") as raised:
        ownership.create_exclusively(tmp_path / "claim", "x")
    assert raised.value.filename == str(tmp_path / "claim")
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(tmp_path / "whole", b"x")
    assert raised.value.filename == str(tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_refused(tmp_path):
    (tmp_path / "x").mkdir()
    os.chown(tmp_path / "x", 12345, 12345)
    with pytest.raises(UsageError, match="belongs to user 12345"):
        RunDir(tmp_path / "x").create()


def test_attempts_are_in_the_order_they_were_made_and_what_is_none_is_passed_over(tmp_path):
    run = RunDir(tmp_path)
    for name in ("10.0", "2.1", "2.0", "0.11", ".nfs0001", ".ipynb_checkpoints", "0.0.before-17", "x"):
        run.attempt("7", name).mkdir(parents=True)
    assert run.attempts("7") == ["0.11", "2.0", "2.1", "10.0"]
    assert run.attempts("8") == []


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    write_whole(tmp_path / "f", b"old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "f", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_file_whose_folder_is_missing_is_named_as_it_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "none" / "f.png", b"x")
    assert caught.value.filename == str(tmp_path / "none" / "f.png")


values = st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none())


@given(st.lists(values, max_size=4), st.integers(min_value=0, max_value=30))
def test_records_come_back_and_a_torn_line_costs_itself_alone(tmp_path_factory, records, torn):
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    for record in records:
        append_record(path, record)
    line = json.dumps({"k": "v" * 40}).encode()
    with path.open("ab") as file:
        file.write(line[:torn])
    assert list(read_records(path)) == records
    assert list(read_records(path.with_name("none"))) == []


def test_taking_back_stops_at_the_first_folder_that_somebody_uses(tmp_path):
    run = RunDir(tmp_path / "a" / "b" / "r")
    made = run.create()
    (tmp_path / "a" / "theirs").write_text("")
    run.remove_unused(made)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "theirs"]
    made = run.create()
    run.batch_log("7").write_text("words of a job")
    run.remove_unused(made)
    assert run.batch_log("7").is_file()


@pytest.mark.parametrize("name", ["back\\slash", "new\nline", "\udcff"])
def test_a_path_that_slurm_loses_logs_in_is_refused(name, tmp_path):
    with pytest.raises(UsageError, match="Slurm writes no log to such a path; choose"):
        RunDir.named(str(tmp_path / name), "r")


def test_of_two_that_make_the_folder_at_once_both_have_it_and_one_has_made_it(tmp_path, monkeypatch):
    run, made = RunDir(tmp_path / "x"), []
    mkdir = Path.mkdir

    def mkdir_while_another_does(path, *args, **options):
        if path == run.path:
            monkeypatch.undo()
            made.append(RunDir(run.path).create())
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir_while_another_does)
    assert run.create() is None
    assert made == [run.path] and run.logs.is_dir()


def test_a_claim_of_a_process_that_is_gone_is_taken(tmp_path):
    run = RunDir(tmp_path)
    run.claim.write_text(f"{socket.gethostname()} 4194305")
    with hold_submission(run):
        assert run.claim.read_text().split() == [socket.gethostname(), str(os.getpid())]
    assert not list(tmp_path.iterdir())


def test_a_file_is_written_through_a_link(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", b"1")
    write_whole(tmp_path / "link", b"2")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"2"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path)])
def test_what_is_not_a_regular_file_is_not_replaced(make, tmp_path):
    path = tmp_path / "out"
    make(path)
    before = path.lstat()
    with pytest.raises(OSError, match="it is not a regular file: .*/out'"):
        write_whole(path, b"x")
    with pytest.raises(UsageError, match=r"^--out: '.*/out' is not a regular file; give another$"):
        files.check_out_file(str(path), "--out")
    assert path.lstat() == before


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)])
def test_what_is_not_a_regular_file_is_read_as_empty_with_one_warning(make, tmp_path, caplog):
    path = tmp_path / "events.jsonl"
    make(path)
    for _ in range(2):
        assert list(read_records(path)) == []
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(f"{path} is not read: ")


def test_nothing_is_appended_to_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    reader = os.open(tmp_path / "events.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="not a regular file"):
        append_record(tmp_path / "events.jsonl", {})
    os.close(reader)


@pytest.mark.parametrize("target", ["jobs", "gone", "f"])
def test_a_link_that_leads_to_no_folder_says_so(target, tmp_path):
    (tmp_path / "f").touch()
    (tmp_path / "jobs").symlink_to(target)
    with pytest.raises(UsageError, match="/jobs is a link that leads to no folder; choose another --runs-dir$"):
        RunDir(tmp_path / "jobs" / "x").create()
    assert (tmp_path / "jobs").is_symlink()


def test_a_name_that_cannot_be_printed_is_refused_as_a_name():
    with pytest.raises(
        UsageError, match=r"^'a\\nb' is not the name of a run: it has a character that cannot be printed"
    ):
        RunDir.named("jobs", "a\nb")
