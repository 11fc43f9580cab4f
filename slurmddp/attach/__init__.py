"""Brings the runtime into a Python that a person's own launch line starts: `srun python train.py`, `srun torchrun ...`.

The supervisor puts the folder `site` first in PYTHONPATH. Each Python below then runs `site/sitecustomize.py`, which
becomes the rank's worker, or does nothing.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from slurmddp import variables

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
"""Runs a module of this slurmddp by a Python that need not have it."""
OLDEST = (3, 9)
"""The oldest Python for ranks and supervisor."""
_FIRST_WITH_P = 11
OF_SRUN = {"SLURM_OPEN_MODE": "a", "SLURM_KILL_BAD_EXIT": "1", "SLURM_WAIT": "0"}
"""What srun reads from the environment where its line says nothing: the step ends with its first dead rank."""


def minor_version(python: str) -> "int | None":
    """Return the N of a Python 3.N, by the name of its file alone; None where the name does not say it."""
    found = re.fullmatch(r"python3\.(\d+)", Path(os.path.realpath(python)).name)
    return int(found[1]) if found else None


def run_words(python: str, *, has_slurmddp: bool = False) -> tuple[str, ...]:
    """Return the words between a Python and a module of slurmddp that run it; Python may be old, and without slurmddp.

    The working folder, where others may have put modules, is not in sys.path. `-P` sees to that from 3.11 on. Where a
    file is run, its own folder is there instead. Code by `-c` would not do: 3.13 imports modules before its first line.
    """
    has_slurmddp |= python == sys.executable
    minor = sys.version_info.minor if python == sys.executable else minor_version(python) or _FIRST_WITH_P
    return ("-P", "-u", "-m") if has_slurmddp and minor >= _FIRST_WITH_P else ("-u", str(BOOTSTRAP))


def attach_variables(environ: Mapping[str, str], package: Path) -> dict[str, str]:
    """Return the variables of a launch by which the Pythons that become its ranks attach.

    `package` is the folder of slurmddp. What the person has set for srun stays.
    """
    site = package / "attach" / "site"
    paths = [str(site), *filter(None, [environ.get("PYTHONPATH")])]
    before = {
        variables.ATTACH_PYTHONPATH: environ.get("PYTHONPATH", ""),
        variables.ATTACH_BASH_ENV: environ.get("BASH_ENV", ""),
    }
    ours = {variables.ATTACH: str(package), "PYTHONPATH": ":".join(paths), "BASH_ENV": str(site / "bash_env.sh")}
    return {name: value for name, value in OF_SRUN.items() if name not in environ} | before | ours
