"""The rooms' doors: which module may import what. The map is the architecture; a new import that breaks it fails."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "slurmddp"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    {"__main__.py"},
    {"cli", "__init__.py"},
    {"doctor", "scaling", "executor", "report"},
    {"submission", "remote"},
    {"script", "monitoring", "worker"},
    {"diagnose", "batch", "runtime"},
    {"watchdog"},
    {"cluster", "runs"},
    {"config"},
    {"sandbox"},
    {"slurm", "supervisor_options.py"},
    {"errors.py", "outcome.py", "trust.py", "attach"},
    {"text.py", "version.py", "variables.py", "exit_codes.py", "background.py", "old_python.py"},
)
"""From the top down; a room imports from the layers below its own alone."""
DOORS = {
    "jinja2": {"script", "report"},
    "click": {"cli"},
    "torch": {"runtime", "worker"},
    "torchvision": {"worker"},
    "submitit": {"executor"},
    "rich": {"cli"},
    "textual": {"cli"},
    "textual_plotext": {"cli"},
    "tensorboard": {"cli", "worker"},
    "numpy": {"runtime"},
    "matplotlib": {"scaling"},
}
STARTERS = {
    "slurm/client.py",
    *("sandbox/cluster.py", "sandbox/first_process.py", "sandbox/programs.py"),
    "batch/__main__.py",
    "batch/notify.py",
    "remote/connection.py",
    *("script/build.py", "script/git.py"),
    *("submission/prepare_data.py", "submission/run_local.py"),
    "diagnose/flight_recorder.py",
    *("doctor/python_check.py", "doctor/storage.py"),
    *("runtime/stopping/children.py", "worker/run_executable.py"),
}
"""The modules that import subprocess."""
SLURM = {
    *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag", "sinfo", "sprio"),
    *("squeue", "sreport", "srun", "sshare", "sstat", "strigger", "slurmctld", "slurmd", "slurmdbd", "slurmstepd"),
}
SMALL = {
    *("errors", "exit_codes", "outcome", "supervisor_options", "variables", "version", "text", "trust", "background"),
    "old_python",
}
IN_A_JOB = {
    "batch": {"attach", "runs", "slurm", "watchdog"},
    "runs": {"slurm"},
    "runtime": {"runs", "slurm", "watchdog"},
    "watchdog": {"runs", "slurm"},
}
"""The rooms whose modules run in a job, and those that each may use: they need neither msgspec nor a configuration."""


def room(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0]


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(module.read_text())))


@cache
def imports(module: Path) -> set[str]:
    """Every module imported anywhere in the file, in full."""
    found = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def libraries(module: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(module)}


def rooms_used(module: Path) -> set[str]:
    """The rooms that a module imports from; `slurmddp` itself is the room `__init__`."""
    rooms = {path.stem for path in PACKAGE.iterdir()}
    parts = [name.split(".") for name in imports(module) if name.split(".")[0] == "slurmddp"]
    return {part[1] if part[1:] and part[1] in rooms else "__init__" for part in parts}


@pytest.mark.parametrize("library", DOORS)
def test_a_heavy_library_enters_by_its_door(library):
    users = {room(module) for module in MODULES if library in libraries(module)}
    assert users <= DOORS[library]


def test_of_the_report_one_module_makes_html():
    users = {module.name for module in (PACKAGE / "report").iterdir() if module.suffix == ".py"}
    assert {name for name in users if "jinja2" in libraries(PACKAGE / "report" / name)} == {"html.py"}


@pytest.mark.parametrize("name", IN_A_JOB)
def test_what_runs_in_a_job_needs_no_configuration(name):
    for module in {*(PACKAGE / name).rglob("*.py")} - {PACKAGE / "runs" / "lookup.py"}:
        assert rooms_used(module) <= {name} | IN_A_JOB[name] | SMALL, module


def test_who_starts_processes():
    users = {str(module.relative_to(PACKAGE)) for module in MODULES if "subprocess" in libraries(module)}
    assert users == STARTERS


def test_slurms_programs_are_named_where_their_commands_are_and_started_by_the_client():
    """A command is a list or a tuple; `sbatch` and `srun` are words of ours, too, so of these only lists count."""
    named = [module for module in MODULES if any(is_command(node) for node in nodes(module))]
    elsewhere = {str(module.relative_to(PACKAGE)) for module in named if room(module) != "slurm"}
    assert elsewhere == {"sandbox/first_process.py", "sandbox/programs.py"}
    assert {name for name in STARTERS if name.startswith("slurm/")} == {"slurm/client.py"}


def is_command(node):
    first = node.elts[0] if isinstance(node, ast.List | ast.Tuple) and node.elts else None
    programs = SLURM if isinstance(node, ast.List) else SLURM - {"sbatch", "srun"}
    return isinstance(first, ast.Constant) and first.value in programs


def test_slurms_modules_load_the_standard_library_alone():
    names = [f"slurmddp.slurm.{path.stem}" for path in (PACKAGE / "slurm").glob("[a-z]*.py")]
    code = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
roots = {{name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__file__", None)}}
known = {{name for name in sys.modules if name.startswith("slurmddp.")}}
values = {{"slurmddp." + name for name in ("slurm", "errors", "exit_codes", "outcome", "variables", "text", "version")}}
strange = known - {{*{names!r}}} - values
sys.exit(f"{{strange}}" if strange or {{"msgspec", "click", "jinja2"}} & roots else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_room_has_its_layer():
    rooms = [name for layer in LAYERS for name in layer]
    assert sorted(rooms) == sorted({room(module) for module in MODULES})


def test_imports_go_down_only():
    for number, layer in enumerate(LAYERS):
        below = {name.removesuffix(".py") for lower in LAYERS[number + 1 :] for name in lower}
        for module in MODULES:
            if room(module) in layer:
                assert rooms_used(module) - {room(module).removesuffix(".py")} <= below, module


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
from slurmddp.cli import run_command_line
try:
    run_command_line({words!r})
finally:
    loaded = {{"torch", "submitit", "numpy", "matplotlib", "rich", "textual"}} & set(sys.modules)
    sys.exit(f"loaded {{loaded}}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
