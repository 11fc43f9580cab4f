"""The environment of Slurm's programs, and the name of the user. No processes."""

import os
import pwd
from collections.abc import Mapping
from typing import Final

from slurmddp import variables

_JOB_PREFIXES: Final = (
    *("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "PMI_", "PMIX_", "OMPI_"),
    "TORCHELASTIC_",
)
_RANK_VARIABLES: Final = frozenset(
    f"{scope}{name}" for scope in ("", "LOCAL_", "GROUP_", "ROLE_") for name in ("RANK", "WORLD_SIZE")
) | {"ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"}

_CLUSTER_VARIABLES: Final = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_JWT_USER"}
)
"""Variables that name the cluster, which its programs need."""


def submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables of another job or rank, and without sbatch's defaults."""
    return {key: value for key, value in environ.items() if key in _CLUSTER_VARIABLES or not is_of_a_job(key)}


def scrubbed(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that are removed for Slurm's programs."""
    return sorted(environ.keys() - submission_environment(environ).keys())


def is_of_a_job(variable: str) -> bool:
    """Return whether a variable belongs to a job or a rank; an inherited one changes or breaks a submission."""
    return variable in _RANK_VARIABLES | variables.NAMES or variable.startswith(_JOB_PREFIXES)


def user() -> str:
    """Return the user's name in Slurm; LOGNAME and USER may name another user."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
