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
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_its_templates_and_its_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "slurmddp").rglob("*.py")}
    templates = {f"slurmddp/templates/{path.name}" for path in (REPOSITORY / "templates").glob("*.j2")}
    digits = {
        f"slurmddp/worker/bundled/data/digits/{path.name}"
        for path in (REPOSITORY / "slurmddp/worker/bundled/data/digits").iterdir()
    }
    page = {"slurmddp/report/page.html.j2", "slurmddp/report/page.css"}
    assert modules | templates | digits | page | {"slurmddp/py.typed"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"slurmddp"}
    assert not [name for name in names if "__pycache__" in name]


def test_the_installed_wheel_renders(wheel, tmp_path):
    """Installed alone into a folder; its libraries come from this environment."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    code = "import slurmddp; print(slurmddp.__file__, flush=True)\n"
    code += "from slurmddp.cli import main; main(['render', '-N', '2'])"
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.splitlines()[:2] == [str(site / "slurmddp" / "__init__.py"), "#!/bin/bash"]
