"""Which Python the ranks run where nobody names one, and the virtual environment that it belongs to. Looks at files.

It is the Python that the user works with: that of the environment which is active, or of the uv project they are in,
as `uv run` would take it; and where neither is another than the one that slurmddp runs in, that one.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from slurmddp.config import job_files
from slurmddp.config.job_files import Ignored
from slurmddp.errors import UsageError


class Found(NamedTuple):
    """A Python, and what led to it; None for the one that slurmddp runs in, where another is not to be trusted."""

    python: str | None
    origin: str


def find(environ: Mapping[str, str], folder: Path, *, needs: bool) -> Found | None:
    """Return the Python of the user's environment; None for the one that slurmddp runs in.

    A uv project counts only when nobody else can have written it. `needs` tells whether the job has a program of the
    user's; without one any Python with slurmddp does. Raises UsageError when the user's environment lacks slurmddp,
    which each rank starts with.
    """
    ignored: list[Ignored] = []
    place = _place(environ, folder, ignored)
    if place is None and ignored:
        return Found(None, f"built-in; {ignored[0].path} is ignored: {ignored[0].why}")
    if place is None or place.prefix.resolve() == Path(sys.prefix).resolve():
        return None
    if has_package(place.prefix, "slurmddp"):
        return Found(str(place.prefix / "bin" / "python"), place.origin)
    if not needs:
        return None
    raise UsageError(
        f"{place.prefix} ({place.origin}) has no slurmddp, which each rank starts with; {place.advice}, "
        f"or choose a Python, as in: --python {sys.executable}"
    )


def environment_of(python: str) -> Path | None:
    """Return the virtual environment that a Python, given by its path, is in; None for any other."""
    if "/" not in python:
        return None
    folder = Path.cwd() / Path(python).expanduser().parent.parent
    return folder if (folder / "pyvenv.cfg").is_file() else None


def has_package(environment: Path, name: str) -> bool:
    """Tell whether a virtual environment can import a package, without starting its Python.

    One that also sees what is installed outside of it is believed to.
    """
    found = environment.glob(f"lib/python3*/site-packages/{name}*")
    if any(path.name == name or path.name.startswith(f"{name}-") for path in found):
        return True
    settings = (environment / "pyvenv.cfg").read_text("utf-8", "replace")
    return "include-system-site-packages = true" in settings


class _Place(NamedTuple):
    prefix: Path
    origin: str
    advice: str


def _place(environ: Mapping[str, str], folder: Path, ignored: list[Ignored]) -> _Place | None:
    """Return the active environment, else that of the uv project; an active conda is neither, if it is ours."""
    active = environ.get("VIRTUAL_ENV")
    if active:
        return _existing(_Place(Path(active), "VIRTUAL_ENV", f"type: {active}/bin/python -m pip install slurmddp"))
    if environ.get("CONDA_PREFIX") and Path(environ["CONDA_PREFIX"]).resolve() == Path(sys.prefix).resolve():
        return None
    projects = (project for project in job_files.upwards(folder) if _is_uv_project(project, ignored))
    found = next(filter(None, (_of_project(project, environ) for project in projects)), None)
    return found if found and _is_trusted(found.prefix, ignored) else None


def _of_project(project: Path, environ: Mapping[str, str]) -> _Place | None:
    """Return a uv project's environment; a member of a workspace has none, and its workspace above has it."""
    prefix = project / environ.get("UV_PROJECT_ENVIRONMENT", ".venv")
    return _existing(_Place(prefix, f"uv project {project}", "type: uv add slurmddp"))


def _existing(place: _Place) -> _Place | None:
    return place if (place.prefix / "pyvenv.cfg").is_file() and (place.prefix / "bin" / "python").exists() else None


def _is_uv_project(folder: Path, ignored: list[Ignored]) -> bool:
    """Tell whether a folder's pyproject.toml is uv's, and nobody else's; one of somebody else's is noted."""
    file = folder / "pyproject.toml"
    try:
        raw, why = job_files.read(file)
    except OSError:
        return False
    is_uvs = (folder / "uv.lock").is_file() or b"[tool.uv" in raw
    if is_uvs and why:
        ignored.append(Ignored(file, why))
    return is_uvs and not why


def _is_trusted(prefix: Path, ignored: list[Ignored]) -> bool:
    """Tell whether nobody else can have made an environment, or chosen its Python; what is wrong is noted.

    A link to a Python is trusted for itself: whoever made it chose that Python, which may be a site's.
    """
    python = prefix / "bin" / "python"
    for path in (prefix, prefix / "pyvenv.cfg", python.parent, python):
        if why := job_files.distrust(path.lstat(), *() if path == python else (path.stat(),)):
            ignored.append(Ignored(path, why))
            return False
    return True
