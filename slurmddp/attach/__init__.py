"""Brings the runtime into a Python that a person's own launch line starts: `srun python train.py`, `srun torchrun ...`.

The supervisor puts the folder `site` first in PYTHONPATH. Each Python below then runs `site/sitecustomize.py`, which
becomes the rank's worker, or does nothing.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from slurmddp import variables

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
"""Runs a module of this slurmddp by a Python that need not have it."""
OF_SRUN = {"SLURM_OPEN_MODE": "a", "SLURM_KILL_BAD_EXIT": "1", "SLURM_WAIT": "0"}
"""What srun reads from the environment where its line says nothing: the step ends with its first dead rank."""


def run_option(python: str) -> str:
    """Return the word before a module of slurmddp on the command line of a Python, which need not have it."""
    return "-m" if python == sys.executable else str(BOOTSTRAP)


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
