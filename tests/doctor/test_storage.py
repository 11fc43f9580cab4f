"""The run's folder before the queue: writable, shared, with room."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor import storage
from slurmddp.doctor.storage import check_storage, needed_bytes
from slurmddp.runs.layout import RunDir


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return JobSpec(job_name="exp", command=("train.py",))


def by_check(spec) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in check_storage(spec):
        found.setdefault(each.check, []).append(f"{each.level}: {each.what}")
    return found


@pytest.mark.parametrize(
    ("sharing", "words"),
    [
        ("local", "warning: {} lies where only this machine can see it"),
        ("shared", "ok: {} is writable, on a network file system"),
        ("unknown", "note: {} is writable; whether the nodes see it"),
    ],
)
def test_a_folder_is_told_by_its_file_system(spec, tmp_path, monkeypatch, sharing, words):
    monkeypatch.setattr(storage, "file_system", lambda _: (sharing, "nfs4"))
    found = by_check(spec)
    assert found["folder"][0].startswith(words.format(f"{tmp_path}/jobs/exp"))
    assert found["room"][0].startswith("ok")


def test_a_folder_that_cannot_be_written_to_is_an_error(spec, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)
    (found,) = check_storage(spec)
    assert (found.level, found.status) == ("error", 2)
    assert found.what.startswith(f"{tmp_path} cannot be written to")


def test_room_is_wanted_by_the_size_of_the_last_checkpoint(spec, tmp_path, monkeypatch):
    run = RunDir(tmp_path / "jobs" / "exp")
    (run.checkpoints / "step-000000001").mkdir(parents=True)
    (run.checkpoints / "step-000000001" / "model.pt").write_bytes(bytes(5000))
    assert needed_bytes(run, spec) == 5000 * 2
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=9999))
    assert by_check(spec)["room"] == ["warning: 1e-05 GB are free in the run's folder, and the run may need 1e-05 GB"]


def test_a_quota_that_is_exceeded_is_told_in_quotas_words(spec, tmp_path):
    """quota(1) is not at hand: this stand-in says what the manual page shows."""
    (tmp_path / "quota").write_text(
        "#!/bin/sh\necho 'Disk quotas for user me (uid 7):'\necho '  Block limit reached on /home'\nexit 1\n"
    )
    (tmp_path / "quota").chmod(0o700)
    assert by_check(spec)["quota"] == [
        "warning: quota reports: Disk quotas for user me (uid 7): Block limit reached on /home"
    ]


LIST = r"""
/dev/root / ext4 rw,relatime 0 0
tmpfs /tmp tmpfs rw 0 0
hidden /scratch nfs rw 0 0
server:/home /home nfs4 rw,relatime,vers=4.2 0 0
/dev/sdb /home/me/my\040disk ext4 rw 0 0
mds@tcp:/scratch /scratch lustre rw 0 0
C:\134 /mnt/c 9p rw,aname=drvfs;path=C:\Program Files 0 0
torn line
"""


@pytest.fixture
def listed(monkeypatch, tmp_path):
    (tmp_path / "mounts").write_text(LIST)
    monkeypatch.setattr(storage, "MOUNTS", tmp_path / "mounts")
    storage._read_mounts.cache_clear()
    yield
    storage._read_mounts.cache_clear()


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("path", "kind", "sharing"),
    [
        ("/home/me/jobs/not/there", "nfs4", "shared"),
        ("/home/me/my disk/jobs", "ext4", "unknown"),
        ("/scratch", "lustre", "shared"),
        ("/scratches", "ext4", "unknown"),
        ("/tmp/jobs", "tmpfs", "local"),  # noqa: S108 - only looked at
        ("/srv", "ext4", "unknown"),
        ("/mnt/c", "9p", "shared"),
    ],
)
def test_the_longest_mount_point_tells(path, kind, sharing):
    assert storage.file_system(Path(path)) == (sharing, kind)


@pytest.mark.usefixtures("listed")
def test_without_the_list_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "MOUNTS", tmp_path / "none")
    storage._read_mounts.cache_clear()
    assert storage.file_system(Path("/srv")) == ("unknown", "")
