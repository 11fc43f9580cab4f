"""The imports of each command are limited, since more would slow down its start (see benchmarks/startup.py)."""

import importlib.util
import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir

REPORT = """
import atexit, json, sys
before = set(sys.modules)
atexit.register(lambda: print(json.dumps(sorted({*sys.modules} - before)), file=sys.stderr))
from slurmddp.cli import run_command_line
run_command_line(sys.argv[1:])
"""
"""Runs a command line; the last line of stderr lists the modules it has loaded."""
SUPERVISOR = """
import json, sys
before = set(sys.modules)
from slurmddp.batch.__main__ import main
main(["--help"])
print(json.dumps(sorted({*sys.modules} - before)), file=sys.stderr)
"""
OF_SUPERVISOR = (
    "dataclasses inspect ast dis tokenize argparse getopt gettext tempfile shutil hashlib copy msgspec click jinja2 "
    "slurmddp.runs.training_events slurmddp.runs.findings"
)
"""What the supervisor must not load before its options are read: each start of a job waits for it."""


class May(NamedTuple):
    """What a command may import."""

    packages: str
    """The allowed packages outside the standard library and slurmddp; never torch, numpy, submitit or rich."""
    never: str
    """Forbidden modules of the standard library and slurmddp; a package stands for all its modules."""


HEAVY = "asyncio concurrent http logging multiprocessing socket "
STATUS = "slurmddp.monitoring slurmddp.runs.history slurmddp.slurm.queries slurmddp.runs.lookup "
SWEEP = "slurmddp.submission.sweep slurmddp.submission.sweep_grid "
SUBMIT = (
    SWEEP
    + "slurmddp.submission.submit slurmddp.submission.cancel slurmddp.submission.requeue slurmddp.script.snapshot "
)
SCRIPT = "slurmddp.script.render slurmddp.script.build slurmddp.script.quoting "
OTHERS = "slurmddp.executor slurmddp.runtime slurmddp.doctor slurmddp.diagnose slurmddp.report slurmddp.scaling "
JOB = "slurmddp.config slurmddp.cluster slurmddp.runs slurmddp.slurm "

ALL = HEAVY + OTHERS
VALUES = "click msgspec typing_extensions "
TABLE = {
    "": May(VALUES, ALL + SUBMIT + SCRIPT + "slurmddp.monitoring.logs tempfile difflib"),
    "--help": May("click", ALL + JOB + STATUS + SUBMIT + SCRIPT + "subprocess json tempfile dataclasses"),
    "render --help": May(VALUES, ALL + STATUS + SUBMIT + SCRIPT + "subprocess json tempfile dataclasses"),
    "render --nodes 2 --gpus-per-node 8": May(
        VALUES + "jinja2 markupsafe",
        ALL + STATUS + SUBMIT + "csv difflib dataclasses subprocess slurmddp.slurm.job_info",
    ),
    "config --nodes 2": May(VALUES, ALL + STATUS + SUBMIT + SCRIPT + "tempfile csv dataclasses subprocess"),
    "cluster": May(
        VALUES,
        ALL + STATUS + SUBMIT + SCRIPT + "slurmddp.config.resolve tempfile dataclasses subprocess",
    ),
    "status": May(
        "click",
        ALL + SUBMIT + SCRIPT + "slurmddp.config.job_spec slurmddp.config.resolve tomllib "
        "slurmddp.monitoring.logs tempfile difflib",
    ),
    "status one": May(
        "click",
        ALL.replace("slurmddp.report ", "slurmddp.report.collect slurmddp.report.html slurmddp.report.curves ")
        + SUBMIT
        + SCRIPT
        + "slurmddp.monitoring.logs tempfile difflib",
    ),
    "logs one": May("click", ALL + SUBMIT + SCRIPT + "tempfile difflib"),
    "cancel one": May("click", ALL + SCRIPT + SWEEP + "slurmddp.submission.submit slurmddp.monitoring.logs difflib"),
    "submit --dry-run": May(
        VALUES + "jinja2 markupsafe tomli_w",
        ALL + "slurmddp.monitoring.logs slurmddp.monitoring.follow slurmddp.runs.lookup",
    ),
}


def loaded(command, folder):
    """Return the modules that a command loads in a folder with a run, without Slurm."""
    append_record(RunDir.named(str(folder / "jobs"), "one").submissions, {"job": "17"})
    words = [sys.executable, "-c", REPORT, *command.split()]
    env = {"PATH": "", "HOME": str(folder)}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return json.loads(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("command", TABLE)
def test_a_command_imports_no_more_than_the_table_says(command, tmp_path):
    (tmp_path / "jobs" / "one").mkdir(parents=True)
    modules = loaded(command, tmp_path)
    assert "slurmddp.cli" in modules
    others = {name.partition(".")[0] for name in modules} - {*sys.stdlib_module_names, "slurmddp"}
    assert others <= set(TABLE[command].packages.split())
    never = TABLE[command].never.split()
    assert among(modules, never) == []


def among(modules, never):
    """Return those modules that are forbidden, or in a package that is."""
    return [name for name in modules if any(f"{name}.".startswith(f"{each}.") for each in never)]


def test_the_supervisor_imports_little():
    words = [sys.executable, "-P", "-c", SUPERVISOR]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    modules = json.loads(done.stderr)
    assert "slurmddp.batch.supervisor" in modules
    assert among(modules, (HEAVY + OF_SUPERVISOR).split()) == []


@pytest.mark.parametrize(
    "name", sorted({*OF_SUPERVISOR.split(), *(name for row in TABLE.values() for name in row.never.split())})
)
def test_the_forbidden_modules_exist(name):
    """A renamed module would no longer be forbidden."""
    assert importlib.util.find_spec(name)
