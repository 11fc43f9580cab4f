"""Maps paths of the program's code to the snapshot of a job that was submitted with --snapshot. Standard library only.

The batch script sets SLURMDDP_CODE to the snapshot, and SLURMDDP_CODE_ORIGIN to the folder that was copied. Files of
that folder that are not in the snapshot, as a virtual environment, are used where they are. A container has the working
directory only under the name SLURMDDP_WORKDIR; SLURMDDP_REAL_WORKDIR is its path without symbolic links.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from slurmddp import variables
from slurmddp.errors import RankError


def require_in_snapshot(path: str) -> str:
    """Return the path of a file or folder of the program in the snapshot; the path itself without a snapshot.

    Raises RankError for a path outside of the code that was copied.
    """
    copy = os.environ.get(variables.CODE)
    if not copy:
        return path
    found = _find_in_snapshot(path)
    if found is None:
        whole, original = os.path.realpath(path), os.environ[variables.CODE_ORIGIN]
        raise RankError(f"{whole} is not in {original}, of which {copy} is a copy; submit it without --snapshot")
    return str(found)


def redirect(environment: MutableMapping[str, str]) -> None:
    """Import the code from the snapshot: change sys.path, PYTHONPATH, and the finders of editable installs."""
    if not environment.get(variables.CODE):
        return
    sys.path[:] = map(map_to_snapshot, sys.path)
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] = os.pathsep.join(map(map_to_snapshot, environment["PYTHONPATH"].split(os.pathsep)))
    for finder in sys.meta_path:
        module = sys.modules.get(getattr(finder, "__module__", ""))
        packages = getattr(module, "MAPPING", None)  # setuptools writes such finders; other tools change sys.path
        if isinstance(packages, dict):
            packages.update({name: map_to_snapshot(folder) for name, folder in packages.items()})


def map_to_snapshot(path: str) -> str:
    """Return the path of a file or folder in the snapshot if it exists there; else the path itself."""
    if not os.environ.get(variables.CODE):
        return path
    found = _find_in_snapshot(path or ".")
    return str(found) if found and found.exists() else path


def _find_in_snapshot(path: str) -> Path | None:
    original = os.path.realpath(os.environ[variables.CODE_ORIGIN])
    whole = Path(os.path.realpath(path))
    # In a container: the real path outside, when symbolic links lead to the working directory.
    here, real = (Path(os.environ.get(name, "/")) for name in (variables.WORKDIR, variables.REAL_WORKDIR))
    while here.name and here.name == real.name:
        here, real = here.parent, real.parent
    for name in (whole, real / whole.relative_to(here) if whole.is_relative_to(here) else whole):
        if name.is_relative_to(original):
            return Path(os.environ[variables.CODE], name.relative_to(original))
    return None
