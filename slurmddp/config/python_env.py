"""The Python of the ranks where none is given, and the virtual environment of a Python. Looks at files.

It is the Python that the user works with: that of the active environment, or of the uv project of the working
directory, as `uv run` takes it. Where there is neither, it is the Python that runs slurmddp.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slurmddp.config.configuration_files import Ignored, iterate_project_folders, read_and_check_owner
from slurmddp.config.option_types import Given
from slurmddp.errors import UsageError
from slurmddp.trust import explain_owner

_ACTIVE: Final = "VIRTUAL_ENV"


def find_python(environ: Mapping[str, str], folder: Path, *, needs: str = "", prefers: str = "") -> Given | None:
    """Return the Python of the user's environment; None for the Python that runs slurmddp.

    A uv project that another user may have written is ignored: the Python is then None, and its origin says why.
    The environment need not have slurmddp. Raises UsageError when it lacks the package `needs`; without the package
    `prefers` the Python is None.
    """
    ignored: list[Ignored] = []
    prefix, origin = _find_environment(environ, folder, ignored)
    if prefix is None and ignored:
        return Given(None, f"built-in; {ignored[0].path} is ignored: {ignored[0].why}")
    if prefix is None or prefix.resolve() == Path(sys.prefix).resolve():
        return None
    if needs and not has_package(prefix, needs):
        install = f"{prefix}/bin/python -m pip install" if origin == _ACTIVE else "uv add"
        raise UsageError(
            f"{prefix} ({origin}) has no {needs}, which a task of your own needs; type: {install} {needs}, or choose a "
            f"Python, as in: --python {sys.executable}"
        )
    if prefers and not has_package(prefix, prefers):
        return None
    return Given(str(prefix / "bin" / "python"), origin)


def environment_of(python: str) -> Path | None:
    """Return the virtual environment of a Python that is given by its path; None for any other Python."""
    if "/" not in python:
        return None
    folder = Path.cwd() / Path(python).expanduser().parent.parent
    return folder if (folder / "pyvenv.cfg").is_file() else None


def has_package(environment: Path, name: str) -> bool:
    """Return whether a virtual environment can import a package, without starting its Python.

    True for an environment that also sees the packages of the system.
    """
    found = environment.glob(f"lib/python3*/site-packages/{name}*")
    if any(path.name == name or path.name.startswith(f"{name}-") for path in found):
        return True
    settings = (environment / "pyvenv.cfg").read_text("utf-8", "replace")
    return "include-system-site-packages = true" in settings


def _find_environment(environ: Mapping[str, str], folder: Path, ignored: list[Ignored]) -> tuple[Path | None, str]:
    """Return the active environment, else that of the uv project, and where it was found; None without one.

    In the conda environment of slurmddp there is none.
    """
    if active := environ.get(_ACTIVE):
        return (Path(active) if _is_environment(Path(active)) else None), _ACTIVE
    if environ.get("CONDA_PREFIX") and Path(environ["CONDA_PREFIX"]).resolve() == Path(sys.prefix).resolve():
        return None, ""
    for project in iterate_project_folders(folder):
        if not _is_uv_project(project, ignored):
            continue
        prefix = project / environ.get("UV_PROJECT_ENVIRONMENT", ".venv")
        if _is_environment(prefix):  # a member of a workspace has none: that of the workspace is further up
            return (prefix if _is_trusted(prefix, ignored) else None), f"uv project {project}"
    return None, ""


def _is_environment(prefix: Path) -> bool:
    return (prefix / "pyvenv.cfg").is_file() and (prefix / "bin" / "python").exists()


def _is_uv_project(folder: Path, ignored: list[Ignored]) -> bool:
    """Return whether a folder's pyproject.toml is uv's and can be trusted; one that cannot is added to `ignored`."""
    file = folder / "pyproject.toml"
    try:
        raw, why = read_and_check_owner(file)
    except OSError:
        return False
    is_uvs = (folder / "uv.lock").is_file() or b"[tool.uv" in raw
    if is_uvs and why:
        ignored.append(Ignored(file, why))
    return is_uvs and not why


def _is_trusted(prefix: Path, ignored: list[Ignored]) -> bool:
    """Return whether no other user can have made an environment or chosen its Python; else add the path to `ignored`.

    Of a link to a Python only the link is checked: its owner chose the Python, which may belong to the site.
    """
    python = prefix / "bin" / "python"
    for path in (prefix, prefix / "pyvenv.cfg", python.parent, python):
        if why := explain_owner(path.lstat(), *() if path == python else (path.stat(),)):
            ignored.append(Ignored(path, why))
            return False
    return True
