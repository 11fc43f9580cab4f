"""Where the program's code is when the job was submitted with a copy of it. Standard library only.

The batch script names the copy, SLURMDDP_CODE, and the folder that it is a copy of, SLURMDDP_CODE_ORIGIN. What lies in
that folder and is no part of the copy, as a virtual environment in it, stays where it is. A container has the working
directory under the name it goes by, SLURMDDP_WORKDIR, alone; SLURMDDP_REAL_WORKDIR is the same without symbolic links.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from slurmddp import variables
from slurmddp.errors import RankError


def place(path: str) -> str:
    """Return where a file or folder of the program is: in the copy, if there is one.

    Raises RankError for one that is not part of the code that was copied.
    """
    copy = os.environ.get(variables.CODE)
    if not copy:
        return path
    placed = _in_copy(path)
    if placed is None:
        whole, original = os.path.realpath(path), os.environ[variables.CODE_ORIGIN]
        raise RankError(f"{whole} is not in {original}, of which {copy} is a copy; submit it without --snapshot")
    return str(placed)


def redirect(environment: MutableMapping[str, str]) -> None:
    """Import from the copy what would come from the code: by the path, PYTHONPATH, and installs that are editable."""
    if not environment.get(variables.CODE):
        return
    sys.path[:] = map(moved, sys.path)
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] = os.pathsep.join(map(moved, environment["PYTHONPATH"].split(os.pathsep)))
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        packages = getattr(module, "MAPPING", None)  # setuptools writes such finders; others put folders on the path
        if isinstance(packages, dict):
            packages.update({name: moved(folder) for name, folder in packages.items()})


def moved(path: str) -> str:
    """Return where a file or folder is in the copy, if it is there; else the path as it is."""
    if not os.environ.get(variables.CODE):
        return path
    placed = _in_copy(path or ".")
    return str(placed) if placed and placed.exists() else path


def _in_copy(path: str) -> Path | None:
    original = os.path.realpath(os.environ[variables.CODE_ORIGIN])
    whole = Path(os.path.realpath(path))
    for name in (whole, _outside(whole)):
        if name.is_relative_to(original):
            return Path(os.environ[variables.CODE], name.relative_to(original))
    return None


def _outside(path: Path) -> Path:
    """Return what a path in a container is outside of it, where symbolic links lead to the working directory."""
    here, real = (Path(os.environ.get(name, "/")) for name in (variables.WORKDIR, variables.REAL_WORKDIR))
    while here.name and here.name == real.name:
        here, real = here.parent, real.parent
    return real / path.relative_to(here) if path.is_relative_to(here) else path
