"""What is built is whole: the wheel's files, and the program that an installation of it gives."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, REPOSITORY]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_its_templates_its_examples_its_rules_and_its_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "slurmddp").rglob("*.py")}
    templates = {f"slurmddp/templates/{path.name}" for path in (REPOSITORY / "templates").glob("*.j2")}
    examples = {f"slurmddp/examples/{path.name}" for path in (REPOSITORY / "examples").glob("*.py")}
    digits = {
        f"slurmddp/worker/bundled/data/digits/{path.name}"
        for path in (REPOSITORY / "slurmddp/worker/bundled/data/digits").iterdir()
    }
    rules = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "slurmddp/diagnose/rules").iterdir()
        if path.suffix in (".toml", ".txt")
    }
    page = {f"slurmddp/report/{name}.html.j2" for name in ("page", "macros", "run", "runs")} | {
        "slurmddp/report/page.css"
    }
    of_sandbox = {
        f"slurmddp/sandbox/{name}" for name in ("slurm.conf.in", "slurmdbd.conf.in", "node.sh", "client_program.in")
    }
    single = {
        "slurmddp/py.typed",
        "slurmddp/script/launch_line.toml",
        "slurmddp/script/launch_line.sh",
        "slurmddp/slurm/pending_reasons.json",
        "slurmddp/slurm/states.json",
        "slurmddp/doctor/findings.toml",
        "slurmddp/runtime/health/findings.json",
        "slurmddp/config/recipes.json",
        "slurmddp/script/job.toml.j2",
    }
    assert modules | templates | examples | digits | rules | page | of_sandbox | single <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"slurmddp"}
    assert {name for name in names if name.startswith("slurmddp/examples/")} == examples
    assert not [name for name in names if "__pycache__" in name]


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """Return a folder with the wheel installed alone; its libraries come from this environment."""
    site = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    return site


def installed(site, folder, *words):
    code = "import slurmddp; print(slurmddp.__file__, flush=True)\n"
    code += f"from slurmddp.cli import run_command_line; run_command_line({[*words]!r})"
    environ = {"PYTHONPATH": str(site)}
    run = [sys.executable, "-c", code]
    out = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[0] == str(site / "slurmddp" / "__init__.py")
    return out[1:]


def test_the_installed_wheel_finds_its_templates_and_its_examples(site, tmp_path):
    assert installed(site, tmp_path, "render", "-N", "2")[0] == "#!/bin/bash"
    assert installed(site, tmp_path, "init", "--example", "steps") == ["steps.toml"]
    assert (tmp_path / "steps.py").read_bytes() == (REPOSITORY / "examples" / "steps.py").read_bytes()
