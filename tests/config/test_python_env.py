"""Which Python the ranks get where nobody names one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ownership import foreign

from slurmddp.config import python_env, resolve
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.script.render import render


def environment(folder: Path, *, has_slurmddp: bool = True, sees_outside: bool = False) -> Path:
    """Make what a virtual environment looks like from outside."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    (folder / "pyvenv.cfg").write_text(f"include-system-site-packages = {str(sees_outside).lower()}\n")
    installed = folder / "lib" / "python3.12" / "site-packages" / "slurmddp-0.1.0.dist-info"
    if has_slurmddp:
        installed.mkdir(parents=True)
    return folder


def find(folder: Path, *, needs: str = "", prefers: str = "", **environ: str):
    found = python_env.find_python(environ, folder, needs=needs, prefers=prefers)
    return found and (found.raw, found.origin)


def test_the_active_environment_is_the_users(tmp_path):
    active = environment(tmp_path / "active")
    assert find(tmp_path, VIRTUAL_ENV=str(active)) == (f"{active}/bin/python", "VIRTUAL_ENV")


def test_nothing_is_looked_for_where_slurmddp_runs_in_the_active_environment(tmp_path):
    environment(tmp_path / ".venv")
    (tmp_path / "pyproject.toml").write_text("[tool.uv]\n")
    assert find(tmp_path, VIRTUAL_ENV=sys.prefix) is None
    assert find(tmp_path, CONDA_PREFIX=sys.prefix) is None


@pytest.mark.parametrize("mark", ["uv.lock", "[tool.uv]"])
def test_a_uv_projects_environment_is_found_from_any_folder_of_it(tmp_path, mark):
    (tmp_path / "pyproject.toml").write_text("[tool.uv]\n" if mark == "[tool.uv]" else "[project]\n")
    if mark == "uv.lock":
        (tmp_path / mark).touch()
    found = environment(tmp_path / ".venv")
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    assert find(folder) == (f"{found}/bin/python", f"uv project {tmp_path}")
    other = environment(tmp_path / "other")
    assert find(folder, UV_PROJECT_ENVIRONMENT="other") == (f"{other}/bin/python", f"uv project {tmp_path}")


def test_a_project_that_is_not_uvs_or_has_no_environment_yet_changes_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    environment(tmp_path / ".venv")
    assert find(tmp_path) is None
    assert find(tmp_path, VIRTUAL_ENV=str(tmp_path / "gone")) is None


def test_an_environment_that_lacks_slurmddp_is_the_users_for_a_program_of_theirs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    active = environment(tmp_path / "active", has_slurmddp=False)

    def python(*words, **worker):
        environ = {"VIRTUAL_ENV": str(active)}
        return resolve.resolve(options={}, words=words, job_file=None, environ=environ, worker=worker).spec.python

    assert python("train.py") == python("-m", "pkg.train") == f"{active}/bin/python"
    assert python() is None
    with pytest.raises(UsageError, match=r"has no msgspec.*-m pip install msgspec, or choose .* --python "):
        python(task="mine:Task")
    outside = environment(tmp_path / "outside", has_slurmddp=False, sees_outside=True)
    assert find(tmp_path, prefers="slurmddp", VIRTUAL_ENV=str(outside)) is not None


def test_where_the_python_comes_from_is_told_and_others_beat_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environ = {"VIRTUAL_ENV": str(environment(tmp_path / "active"))}

    def python(**options):
        resolved = resolve.resolve(options=options, words=("train.py",), job_file=None, environ=environ)
        return resolved.spec.python, resolved.origins["python"]

    assert python() == (f"{tmp_path}/active/bin/python", "VIRTUAL_ENV")
    assert python(python="x") == ("x", "--python")
    assert python(venv="v") == python(container="a.sif") == (None, "built-in")


def test_set_up_lines_come_after_the_users_own_python_and_may_change_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    active = environment(tmp_path / "active")

    def job(**options):
        environ = {"VIRTUAL_ENV": str(active)}
        return resolve.resolve(options=options, words=("train.py",), job_file=None, environ=environ)

    resolved = job(setup=("a", "b"), setup_order=("setup", "setup"))
    assert resolved.spec.setup_steps == (("venv", str(active)), ("setup", "a"), ("setup", "b"))
    assert (resolved.spec.python, resolved.origins["venv"]) == (None, "VIRTUAL_ENV")
    assert job(setup=("a",), python="x").spec.setup_steps == (("setup", "a"),)
    (record,) = [resolve.build_record(job(module=("m",), conda="e"), directory="/", version="1")]
    assert "python" not in record


def test_what_the_ranks_start_finds_their_environment_too(tmp_path):
    """Also when nothing is active: slurmddp may be called by its path."""
    folder = environment(tmp_path / "it's")
    script = render(JobSpec(job_name="x", python=str(folder / "bin" / "python")))
    (line,) = [line for line in script.splitlines() if "VIRTUAL_ENV" in line]
    done = subprocess.run(
        ["/bin/bash", "-c", f'{line}; echo "$VIRTUAL_ENV $PATH"'], env={"PATH": "/x"}, capture_output=True, check=True
    )
    assert done.stdout.decode() == f"{folder} {folder}/bin:/x\n"
    assert "VIRTUAL_ENV" not in render(JobSpec(job_name="x", python="python3"))


@pytest.fixture
def project(tmp_path):
    """A uv project, whose Python is a link as uv makes it."""
    folder = tmp_path / "project"
    python = environment(folder / ".venv") / "bin" / "python"
    python.unlink()
    python.symlink_to(tmp_path / "python3.12")
    (tmp_path / "python3.12").touch()
    (folder / "pyproject.toml").write_text("[tool.uv]\n")
    assert find(folder) == (str(python), f"uv project {folder}")
    return folder


@pytest.mark.parametrize("name", ["pyproject.toml", ".venv", ".venv/pyvenv.cfg", ".venv/bin", ".venv/bin/python"])
def test_what_somebody_else_owns_of_a_uv_project_does_not_count(name, project, monkeypatch):
    foreign(project / name, monkeypatch)
    python, origin = find(project)
    assert python is None
    assert re.fullmatch(rf"built-in; {project}/.* is ignored: it belongs to user \d+, .*", origin)
    monkeypatch.chdir(project)
    resolved = resolve.resolve(options={}, words=("train.py",), job_file=None, environ={})
    assert (resolved.spec.python, resolved.origins["python"]) == (None, origin)


@pytest.mark.parametrize("name", ["pyproject.toml", ".venv", ".venv/pyvenv.cfg", ".venv/bin"])
def test_what_everybody_may_write_of_a_uv_project_does_not_count(name, project):
    (project / name).chmod(0o777)
    assert find(project) == (
        None,
        f"built-in; {project / name} is ignored: every user may write to it; type `chmod o-w` on it to use it",
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a Python that is somebody else's")
def test_my_link_to_a_sites_python_counts(project, tmp_path, monkeypatch):
    foreign(tmp_path / "python3.12", monkeypatch)
    assert find(project)[0] == f"{project}/.venv/bin/python"


def test_somebody_elses_project_does_not_hide_mine_above_it(project):
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.uv]\n")
    (inner / "pyproject.toml").chmod(0o666)
    assert find(inner)[0] == f"{project}/.venv/bin/python"


@pytest.mark.parametrize("member", ["[tool.uv.sources]\n", "[project]\n"])
def test_a_member_of_a_uv_workspace_has_the_environment_of_the_workspace(project, member):
    inner = project / "packages" / "inner"
    (inner / "src").mkdir(parents=True)
    (inner / "pyproject.toml").write_text(member)
    assert find(inner / "src") == (f"{project}/.venv/bin/python", f"uv project {project}")
    own = environment(inner / ".venv")
    nearest = own if "uv" in member else project / ".venv"
    assert find(inner / "src")[0] == f"{nearest}/bin/python"


def test_a_uv_project_is_not_looked_for_above_the_repository_or_home(project, monkeypatch):
    inner = project / "inner"
    (inner / "deep").mkdir(parents=True)
    assert find(inner / "deep") is not None
    monkeypatch.setenv("HOME", str(inner))
    assert find(inner / "deep") is None
    monkeypatch.setenv("HOME", "/nowhere")
    (inner / ".git").mkdir()
    assert find(inner / "deep") is None
