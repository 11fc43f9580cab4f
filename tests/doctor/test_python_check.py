"""The job's Python, asked by a real one: what it lacks is named, with what to type."""

import os
import subprocess
import sys
import textwrap
import venv
from importlib.metadata import version

import pytest

from slurmddp import __version__
from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor import python_check
from slurmddp.doctor.python_check import check_packages, check_python, find_python, probe_python


def spec(**changes) -> JobSpec:
    return JobSpec(**({"job_name": "exp", "command": ("train.py",)} | changes))


def answer(**changes):
    well = {
        "version": [3, 11, 4],
        "torch": "2.13.0+cu130",
        "torch in": None,
        "slurmddp": __version__,
        "msgspec": "0",
        "modules": {},
    }
    return well | changes


def test_this_python_is_told_with_its_torch():
    (*_, found) = check_python(spec(), os.environ)
    assert (found.check, found.level) == ("python", "ok")
    assert (
        found.what
        == f"{sys.executable} is Python {'.'.join(map(str, sys.version_info[:3]))} with torch {version('torch')}"
    )


def test_torch_is_not_imported():
    words = [sys.executable, "-X", "importtime", "-c", python_check._PROBE.read_text()]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert version("torch") in done.stdout
    assert "torch._C" not in done.stderr and "| torch\n" not in done.stderr


def test_a_bare_environment_lacks_torch_and_what_the_bundled_worker_needs(tmp_path):
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    found = list(check_python(spec(venv=str(tmp_path / "bare"), command=()), {"PATH": os.environ["PATH"]}))
    python = f"{tmp_path}/bare/bin/python"
    assert [(each.level, each.status) for each in found] == [("error", 2)] * 2
    assert [each.advice for each in found] == [f"{python} -m pip install {name}" for name in ("msgspec", "torch")]


@pytest.mark.parametrize(
    ("changes", "python"),
    [
        ({}, sys.executable),
        ({"python": "/opt/python"}, "/opt/python"),
        ({"venv": "env/"}, "env/bin/python"),
        ({"venv": "$SLURM_TMPDIR/env"}, None),
        ({"conda": "exp"}, None),
        ({"module": ("gcc",)}, None),
        ({"setup": ("source env.sh",), "python": "/opt/python"}, "/opt/python"),
        ({"setup_file": "env.sh", "python": "python3"}, None),
        ({"container": "torch.sif", "python": "/opt/python"}, None),
    ],
)
def test_which_python_the_ranks_get(changes, python):
    assert find_python(spec(**changes)) == python


def test_the_supervisors_python_is_looked_at_where_the_ranks_is_in_a_container(tmp_path):
    (tmp_path / "t.sif").touch()
    first, note = check_python(spec(container=str(tmp_path / "t.sif")), os.environ)
    assert (first.level, first.what) == ("ok", f"the supervisor's {sys.executable} has slurmddp {__version__}")
    assert note.level == "note"
    gone, _ = check_python(spec(container="t.sif", supervisor_python="/gone/python"), os.environ)
    assert (gone.level, gone.status) == ("error", 2)
    assert gone.what == "the supervisor's Python /gone/python cannot be started: No such file or directory"
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    bare = str(tmp_path / "bare" / "bin" / "python")
    lacks, _ = check_python(spec(container="t.sif", supervisor_python=bare), {"PATH": os.environ["PATH"]})
    assert lacks.what == f"the supervisor's Python {bare} has no slurmddp"


def test_a_python_of_the_nodes_or_of_a_container_is_left_to_the_job():
    (found,) = check_python(spec(conda="exp"), os.environ)
    assert found.level == "note" and "--in-job" in found.advice
    (_, found) = check_python(spec(container="torch.sif", python="/no/such/python"), os.environ)
    assert (found.level, found.what) == ("note", "the job's Python is in its container")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "cannot be started: No such file or directory"),
        ("echo hello >&2; exit 3", "ends with status 3: hello"),
        ("exit 4", "ends with status 4: no message"),
        ("exec sleep 60", "has not started within 1 s"),
    ],
)
def test_a_python_that_does_not_answer_says_why(tmp_path, monkeypatch, script, words):
    monkeypatch.setattr(python_check, "TIMEOUT_S", 1.0)
    program = tmp_path / "python"
    if script:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
    assert probe_python(str(program), spec(), os.environ) == words
    (found,) = check_python(spec(python=str(program)), os.environ)
    assert (found.level, found.status, found.what) == ("error", 2, f"{program} {words}")


@pytest.mark.parametrize(
    ("changes", "asked", "level", "words"),
    [
        ({"version": [3, 8, 1]}, {}, "error", "is Python 3.8.1; the ranks need 3.9 or newer"),
        ({"torch": "2.13.0+cpu"}, {"gpus_per_node": "2"}, "warning", "torch 2.13.0+cpu is built for CPUs"),
        ({"modules": {"pkg.train": False}}, {}, "error", "needs the module pkg.train"),
        ({"modules": {"pkg.train": False}}, {"setup": ("source env.sh",)}, "note", "needs the module pkg.train"),
    ],
)
def test_what_is_wrong_with_a_python_is_said(changes, asked, level, words):
    found = list(check_packages("/opt/python", answer(**changes), spec(**asked)))
    assert found[0].level == level and words in found[0].what


def test_a_torch_on_a_network_file_system_is_imported_once_a_node(monkeypatch):
    monkeypatch.setattr(python_check, "file_system", lambda _: ("shared", "nfs4"))
    many = spec(gpus_per_node="8", nodes=2)
    assert [each.check for each in check_packages("python", answer(), many)] == ["imports", "python"]
    assert [each.check for each in check_packages("python", answer(), spec(gpus_per_node="8", launcher="fork"))] == [
        "python"
    ]


def test_the_python_is_asked_with_the_jobs_variables(tmp_path):
    (tmp_path / "mine.py").touch()
    asked = spec(command=("-m", "mine"), env=(f"PYTHONPATH={tmp_path}", "HOME"))
    assert probe_python(sys.executable, asked, os.environ)["modules"] == {"mine": True}


def test_modules_of_the_working_folder_are_not_taken(tmp_path, monkeypatch):
    """Python 3.13 imports linecache and collections for code by `-c`, before its first line."""
    for name in ("json", "linecache", "collections", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the working folder')")
    monkeypatch.chdir(tmp_path)
    found = probe_python(sys.executable, spec(), dict(os.environ))
    assert found["torch"] == version("torch")


def test_what_a_script_imports_and_the_python_lacks_is_named_and_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "src"
    (folder / "near").mkdir(parents=True)
    (folder / "beside.py").touch()
    script = """\
        from __future__ import annotations
        import os, sys, no_such_one.part as part
        import beside, near
        import slurmddp
        from no_such_two import x
        from .package import y
        try:
            import optional_one
        except ImportError:
            pass
        def late():
            import no_such_three
        raise SystemExit("run")
        """
    (folder / "train.py").write_text(textwrap.dedent(script))
    job = spec(command=("src/train.py", "--lr", "1"))
    found = [one for one in check_python(job, os.environ) if "needs the module" in one.what]
    assert [one.what.split()[4] for one in found] == ["no_such_one,", "no_such_two,"]
    assert all(one.level == "error" and "pip install no_such" in one.advice for one in found)
    (folder / "train.py").write_text("print 'an old program'")
    assert not [one for one in check_python(job, os.environ) if "module" in one.what]
