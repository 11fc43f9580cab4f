"""The archive of an environment, and its copy on a node: what is in it, its name, that it runs, and is whole."""

import contextlib
import io
import os
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from slurmddp.batch import stage
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.script.build import build_script
from slurmddp.script.environment import Environment, pack_environment, read_environment

PROBE = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, json.__file__]))"


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A virtual environment with a module, a script and an editable install; its base is a small stand-in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    base, folder = tmp_path / "python", tmp_path / "venv"
    for path, text in {
        "python/bin/python3.11": "",
        "python/lib/python3.11/os.py": "",
        "python/lib/python3.11/site-packages/big.py": "",
        "venv/pyvenv.cfg": f"home = {base}/bin\ninclude-system-site-packages = false\n",
        "venv/bin/tool": f"#!{folder}/bin/python3\nprint(1)\n",
        "venv/lib/python3.11/site-packages/mine.pth": "/src/mine\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (folder / "bin/python3").symlink_to(base / "bin/python3.11")
    (folder / "bin/outside").symlink_to("/usr/bin/env")
    return Environment(folder, base)


def node(archive: Path, folder: Path, step: str = "unpack", queued: str = "7", job: str = "7") -> str:
    """The answer of a step on this node."""
    words = [step, str(folder), str(archive), queued]
    answer = io.StringIO()
    with mock.patch.dict(os.environ, SLURM_JOB_ID=job), contextlib.redirect_stdout(answer):
        stage.main(words)
    return answer.getvalue().strip()


def test_a_copy_has_its_own_interpreter_and_scripts(venv, tmp_path):
    archive, nodes = pack_environment(venv, "jobs"), tmp_path / "nodes"
    assert node(archive, nodes, "check") == "missing"
    assert node(archive, nodes) == "ready"
    assert node(archive, nodes, "check") == "ready"
    copy = nodes / venv.key
    assert (copy / "env/bin/python3").readlink() == Path("../../base/bin/python3.11")
    assert (copy / "env/bin/outside").readlink() == Path("/usr/bin/env")
    assert (copy / "env/pyvenv.cfg").read_text().startswith(f"home = {copy}/base/bin\n")
    assert (copy / "env/bin/tool").read_text() == f"#!{copy}/env/bin/python3\nprint(1)\n"
    assert (copy / "env/lib/python3.11/site-packages/mine.pth").read_text() == "/src/mine\n"
    assert not (copy / "base/lib/python3.11/site-packages").exists()
    assert nodes.stat().st_mode & 0o777 == 0o700


def test_a_changed_file_changes_the_key_and_a_compiled_module_does_not(venv):
    before = venv.key
    (venv.prefix / "__pycache__").mkdir()
    (venv.prefix / "__pycache__/x.pyc").write_text("x")
    assert Environment(venv.prefix, venv.base).key == before
    assert pack_environment(venv, "jobs")
    assert pack_environment(Environment(venv.prefix, venv.base), "jobs") is None
    (venv.prefix / "new.py").write_text("")
    assert Environment(venv.prefix, venv.base).key != before


def test_what_was_left_by_a_packing_that_was_killed_is_removed_by_the_next(venv, tmp_path):
    """That of a process which lives, or is on another machine, stays."""
    folder = tmp_path / f"jobs/.environments-{os.getuid()}"
    here = os.uname().nodename
    names = [f".packing-4194305@{here}", f".packing-{os.getppid()}@{here}", ".packing-4194305@elsewhere"]
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "1.tar").write_text("a part")
    tmp_path.joinpath("jobs").chmod(0o700)
    archive = pack_environment(venv, "jobs")
    left = {".gitignore", archive.name, *names[1:]}
    assert {path.name for path in folder.iterdir()} == left


@pytest.mark.parametrize("damage", [lambda whole: whole[:-20_000], lambda whole: whole.replace(b"home", b"h0me")])
def test_a_damaged_archive_leaves_nothing(venv, tmp_path, damage):
    archive, nodes = pack_environment(venv, "jobs"), tmp_path / "nodes"
    node(archive, nodes, "check")
    archive.write_bytes(damage(archive.read_bytes()))
    assert "is damaged" in node(archive, nodes)
    assert list(nodes.iterdir()) == []


def test_of_the_copies_that_no_job_uses_the_last_one_stays(venv, tmp_path):
    archive, nodes = pack_environment(venv, "jobs"), tmp_path / "nodes"
    node(archive, nodes, "check")
    for number, (name, job) in enumerate({"old": "1", "used": "2", "last": "3"}.items()):
        (nodes / name / ".jobs").mkdir(parents=True)
        (nodes / name / ".jobs" / job).touch()
        os.utime(nodes / name / ".jobs", (number, number))
    (nodes / ".part-killed").mkdir()
    (nodes / ".1.tar").touch()
    node(archive, nodes, "check", queued="")
    assert (nodes / "old").exists()
    node(archive, nodes, "check", queued="2,7")
    assert sorted(path.name for path in nodes.iterdir()) == ["last", "used"]


def test_a_folder_of_another_or_without_space_is_refused(venv, tmp_path, monkeypatch):
    archive, nodes = pack_environment(venv, "jobs"), tmp_path / "nodes"
    nodes.mkdir()
    nodes.chmod(0o777)
    assert node(archive, nodes, "check").endswith(f"every user may write to '{nodes}'; type: chmod o-w '{nodes}'")
    nodes.chmod(0o700)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    assert "has 0 MB free" in node(archive, nodes, "check")


def test_a_real_environment_runs_from_its_copy(small_environment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = read_environment(JobSpec(job_name="x", venv=str(small_environment), stage_env="/local"))
    archive, nodes = pack_environment(environment, "jobs"), tmp_path / "nodes"
    node(archive, nodes, "check")
    assert node(archive, nodes) == "ready"
    python = nodes / environment.key / "env/bin/python3"
    said = subprocess.run([python, "-P", "-c", PROBE], capture_output=True, text=True, check=True, env={}).stdout
    assert said.count(str(nodes)) == 3 and str(small_environment) not in said


def test_a_python_that_cannot_be_staged_and_an_archive_that_cannot_be_written_are_refused(venv, tmp_path):
    (tmp_path / "jobs").write_text("a file")
    with pytest.raises(UsageError, match="--stage-env: .*jobs"):
        pack_environment(venv, "jobs")
    with pytest.raises(UsageError, match="does not start here"):
        read_environment(JobSpec(job_name="x", python="/no/python", stage_env="/local"))
    (tmp_path / "usr").write_text('#!/bin/sh\necho \'["/usr", "/usr"]\'\n')
    (tmp_path / "usr").chmod(0o700)
    with pytest.raises(UsageError, match="no environment of its own"):
        build_script(JobSpec(job_name="x", python="./usr", stage_env="/local"))
