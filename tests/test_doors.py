"""The rooms' doors: which module may import what. The map is the architecture; a new import that breaks it fails."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "slurmddp"
MODULES = sorted(PACKAGE.rglob("*.py"))

DOORS = {
    "jinja2": {"render.py", "report"},
    "click": {"cli"},
    "torch": {"runtime", "worker"},
    "subprocess": {
        "slurm",
        "batch",
        "local.py",
        "prepare.py",
        "provenance.py",
        "compare.py",
        "diagnose",
        "doctor",
        "sandbox",
        "worker",
    },
    "torchvision": {"worker"},
    "submitit": {"executor"},
    "rich": {"cli"},
    "pynvml": {"cli"},
    "tensorboard": {"cli", "worker"},
    "numpy": {"scaling"},
    "matplotlib": {"scaling"},
    "plotext": {"scaling"},
}
WORKERS_SIDE = {
    "runtime",
    "worker",
    "batch",
    "runs",
    "rundir.py",
    "outcome.py",
    "errors.py",
    "finding.py",
    "variables.py",
}
CLI_ONLY = {
    "cli",
    "doctor",
    "scaling",
    "submit",
    "handover",
    "diagnose",
    "report",
    "target",
    "origin",
    "beside",
    "status",
    "cancel",
    "sameness",
    "render",
    "spec",
    "config",
    "sandbox",
    "local",
    "script",
    "prepare",
    "follow",
    "logs",
    "terminal",
    "quoting",
    "command",
    "requeue",
    "compare",
    "hostlist",
    "codecopy",
    "container",
    "interpreter",
    "provenance",
    "sources",
    "tables",
    "starter",
    "request",
    "array",
    "sweep",
    "cluster",
    "executor",
}


def room(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0]


def imports(module: Path) -> set[str]:
    """Every module imported anywhere in the file, in full."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("library", DOORS)
def test_a_heavy_library_enters_by_its_door(library):
    users = {room(module) for module in MODULES if any(name.split(".")[0] == library for name in imports(module))}
    assert users <= DOORS[library]


def test_of_the_report_one_module_makes_html():
    users = {module.name for module in (PACKAGE / "report").iterdir() if module.suffix == ".py"}
    assert {name for name in users if "jinja2" in imports(PACKAGE / "report" / name)} == {"page.py"}


def test_the_workers_side_does_not_know_the_command_lines():
    for module in MODULES:
        if room(module) in WORKERS_SIDE:
            known = {name.split(".")[1] for name in imports(module) if name.startswith("slurmddp.")}
            assert not known & CLI_ONLY, module


def test_slurms_programs_are_started_in_one_place():
    users = {module.name for module in (PACKAGE / "slurm").iterdir() if module.suffix == ".py"}
    assert {name for name in users if "subprocess" in imports(PACKAGE / "slurm" / name)} == {"client.py"}


def test_slurms_modules_load_the_standard_library_alone():
    names = [f"slurmddp.slurm.{path.stem}" for path in (PACKAGE / "slurm").glob("[a-z]*.py")]
    code = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
roots = {{name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__file__", None)}}
known = {{name for name in sys.modules if name.startswith("slurmddp.")}}
strange = known - {{*{names!r}, "slurmddp.slurm", "slurmddp.errors", "slurmddp.outcome", "slurmddp.variables"}}
sys.exit(f"{{strange}}" if strange or {{"msgspec", "click", "jinja2"}} & roots else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_imports_go_down_only():
    order = [
        "cli",
        "report",
        "diagnose",
        "doctor",
        "scaling",
        "requeue.py",
        "cancel.py",
        "status",
        "submit.py",
        "executor",
        "script.py",
        "prepare.py",
        "render.py",
        "codecopy.py",
        "config.py",
        "interpreter.py",
        "sources.py",
        "tables.py",
        "spec.py",
        "container.py",
        "fields.py",
        "masking.py",
        "slurm",
        "errors.py",
        "outcome.py",
    ]
    for module in MODULES:
        if room(module) in order:
            above = {name.removesuffix(".py") for name in order[: order.index(room(module))]}
            known = {name.split(".")[1] for name in imports(module) if name.startswith("slurmddp.")}
            assert not known & above, module


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["status", "--json"],
        ["render", "--help"],
        ["render"],
        ["submit", "--help"],
        ["doctor"],
        ["scale", "--help"],
        ["report", "--help"],
    ],
)
def test_the_command_line_loads_neither_torch_nor_submitit_nor_rich(words):
    code = f"""
import sys
from slurmddp.cli import main
try:
    main({words!r})
finally:
    loaded = {{"torch", "submitit", "numpy", "matplotlib", "rich"}} & set(sys.modules)
    sys.exit(f"loaded {{loaded}}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
