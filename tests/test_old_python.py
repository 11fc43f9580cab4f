"""What runs on the nodes runs on Python 3.9 and newer: the batch script's supervisor, and the ranks."""

import ast
import fnmatch
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from old_python import PACKAGE, closure, find_old_python, has_torch, third_parties

from slurmddp.attach import BOOTSTRAP, minor_version, run_words
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.script.build import check_pythons

IMPORT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
"""
needs_old_python = pytest.mark.skipif(not find_old_python(), reason="no Python 3.9 or 3.10")


def test_each_module_of_a_node_is_checked_for_python_3_9():
    """Ruff then refuses what 3.9 cannot evaluate; a part of its rules needs no interpreter of that age."""
    config = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    patterns = [
        "".join(words).replace("**", "*")
        for pattern in config["tool"]["ruff"]["per-file-target-version"]
        for words in itertools.product(*(part.split(",") for part in re.split("[{}]", pattern)))
    ]
    for path in closure():
        name = str(path.relative_to(PACKAGE.parent))
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns), (
            f"{name} is not in pyproject.toml's list"
        )


@pytest.mark.parametrize("path", closure(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_syntax_is_newer(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_no_annotation_and_no_name_is_newer():
    words = [sys.executable, "-m", "ruff", "check", "--select", "F,E9,FA102,UP", *closure()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@needs_old_python
def test_each_module_can_be_imported():
    """Those that need torch are only compiled where the old Python has none."""
    python = find_old_python()
    there = {name for name in ("torch", "msgspec", "torchvision") if _has(python, name)}
    modules = [path for path in closure() if path.stem not in ("sitecustomize", "__main__")]
    names = [_name(path) for path in modules if third_parties(path) <= there]
    assert "slurmddp.batch.supervisor" in names and "slurmddp.worker.entry" in names
    subprocess.run([python, "-c", IMPORT, PACKAGE.parent, *names], check=True)
    compiled = "import sys\nfor path in sys.argv[1:]: compile(open(path, encoding='utf-8').read(), path, 'exec')"
    subprocess.run([python, "-c", compiled, *closure()], check=True)


def _has(python, name):
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def _name(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize(
    ("name", "minor", "has_option"),
    [
        ("python3.8", 8, False),
        ("python3.9", 9, False),
        ("python3.10", 10, False),
        ("python3.11", 11, True),
        ("python3.13", 13, True),
        ("python3", None, True),
        ("pypy3.9", None, True),
    ],
)
def test_the_name_that_a_link_leads_to_tells_how_slurmddp_is_started(tmp_path, name, minor, has_option):
    (tmp_path / name).touch()
    (tmp_path / "python").symlink_to(name)
    python = str(tmp_path / "python")
    assert minor_version(python) == minor
    assert run_words(python, has_slurmddp=True) == (("-P", "-u", "-m") if has_option else ("-u", str(BOOTSTRAP)))
    assert run_words(python) == ("-u", str(BOOTSTRAP))


def test_a_python_that_is_too_old_is_refused_at_submission(tmp_path):
    python = tmp_path / "python3.8"
    python.touch(mode=0o755)
    for key in ("python", "supervisor_python"):
        with pytest.raises(UsageError, match=r"python3\.8' is Python 3\.8; ranks and supervisor need 3\.9 or newer"):
            check_pythons(JobSpec(job_name="x", **{key: str(python)}), "")


@needs_old_python
def test_modules_of_the_working_folder_are_not_taken(tmp_path):
    """With `-m` alone an older Python would import the first of them before any line of slurmddp."""
    for name in ("runpy", "signal", "slurmddp", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the working folder')")
    python = find_old_python()
    words = [python, *run_words(python), "slurmddp.batch", "--own-launch"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == UsageError.exit_status and "SLURM_JOB_ID is not set" in done.stderr


@needs_old_python
def test_a_missing_value_is_said_where_dataclasses_know_no_kw_only():
    code = "from slurmddp.runs.findings import Finding\nFinding(check='python', what='x')"
    done = subprocess.run(
        [find_old_python(), "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "Finding" in done.stderr and "'level'" in done.stderr


PROGRAM = """
import sys
print(sys.version_info[:2], "slurmddp.worker.entry" in sys.modules)
"""
TRAINING = (
    PROGRAM
    + """
import torch
import slurmddp
with slurmddp.init() as ddp:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    run = slurmddp.Checkpointer(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in run.steps(3):
        model(torch.ones(2, 4)).sum().backward()
"""
)
SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=out
srun {python} train.py
echo "after $?"
"""


@needs_old_python
@pytest.mark.slurm
def test_ranks_and_supervisor_of_a_script_run_on_it(cli, tmp_path):
    """The program trains where the old Python has torch."""
    python = find_old_python()
    (tmp_path / "train.py").write_text(TRAINING if has_torch(python) else PROGRAM)
    (tmp_path / "old.sbatch").write_text(SCRIPT.format(python=python))
    cli("submit", "--wait", "--supervisor-python", python, "old.sbatch")
    printed = (tmp_path / "out").read_text()
    assert printed.count(f"(3, {minor_version(python)}) True\n") == 2 and "after 0\n" in printed
    events = [json.loads(line) for line in (tmp_path / "jobs/old/events.jsonl").read_text().splitlines()]
    assert [event["reason"] for event in events if event["event"] == "attempt_end"] == ["done"]
