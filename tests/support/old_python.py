"""The Pythons of this machine that are older than the tests' own, and the modules of slurmddp that must run on them."""

import ast
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import slurmddp

PACKAGE = Path(slurmddp.__file__).parent
ROOMS = ("attach", "batch", "runtime", "worker")
"""What a node starts; with all that these import."""
OPTIONAL = "slurmddp.diagnose.node_faults"
"""A program of its own, which the supervisor starts; where it cannot run, nothing is noted of the nodes."""
_PLACES = (
    (Path.home() / ".pyenv/versions", "3.{}.*/bin/python3.{}"),
    (Path.home() / ".local/share/uv/python", "cpython-3.{}.*/bin/python3.{}"),
    (Path("/usr/local/bin"), "python3.{1}"),
    (Path("/usr/bin"), "python3.{1}"),
)


@cache
def find_old_python() -> str:
    """Return $SLURMDDP_TESTS_OLD_PYTHON, else the oldest of 3.9 and 3.10 on this machine; empty if there is none."""
    given = os.environ.get("SLURMDDP_TESTS_OLD_PYTHON", "")
    patterns = [(folder, name.format(minor, minor)) for minor in (9, 10) for folder, name in _PLACES]
    found = (str(path) for folder, name in patterns for path in sorted(folder.glob(name)))
    return given or next(filter(_starts, found), "")


def _starts(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@cache
def has_torch(python: str) -> bool:
    """Return whether a Python can import torch."""
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def closure() -> list[Path]:
    """Return the modules that a node may run: those of ROOMS, and what these import, also inside of functions."""
    todo = [path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")]
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += [module for name in _imports(path) if name != OPTIONAL for module in _modules(name)]
    return sorted(found)


def third_parties(path: Path) -> set[str]:
    """Return the packages that a module, or a module that it imports at once, needs beside the standard library."""
    reached: set[Path] = set()
    todo, names = [path], set()
    while todo:
        module = todo.pop()
        if module not in reached:
            reached.add(module)
            names |= {name.partition(".")[0] for name in _imports(module, inside=False)}
            todo += [other for name in _imports(module, inside=False) for other in _modules(name)]
    return names & {"torch", "msgspec", "torchvision", "lightning", "transformers"}


def _imports(path: Path, *, inside: bool = True) -> Iterator[str]:
    """Yield the modules that a module imports, and what it imports from them; `inside` of functions, too."""

    def walk(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside:
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("slurmddp."):
            yield node.value.partition(":")[0]  # imported by its name
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    return walk(ast.parse(path.read_text()))


def _modules(name: str) -> Iterator[Path]:
    """Yield the files that are run to import a module of slurmddp."""
    parts = name.split(".")
    if parts[0] != "slurmddp":
        return
    for end in range(1, len(parts) + 1):
        place = PACKAGE.joinpath(*parts[1:end])
        yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())
