"""What a shell offers for the value of an option of the job: its choices, or what the cluster and the files have."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp.config import job_files
from slurmddp.config.option_types import Field
from slurmddp.errors import SlurmddpError
from slurmddp.slurm import client
from slurmddp.slurm import commands as slurm_commands
from slurmddp.slurm.environment import user

_LIMIT_S: Final = 2.0
"""A shell waits for the answer."""


def complete_value(field: Field, incomplete: str) -> list[str]:
    """Return the values that begin with a text; none when Slurm does not answer soon."""
    found = field.choices or _find_values(field.key)
    return sorted({word for word in found if word.startswith(incomplete) and re.fullmatch(r"[\w.:+-]+", word)})


def _find_values(key: str) -> list[str]:
    nodes = slurm_commands.list_nodes("--Node")
    commands = {
        "partition": slurm_commands.list_nodes(columns="%R"),
        "nodelist": nodes,
        "exclude": nodes,
        "account": slurm_commands.list_accounts("associations", f"user={user()}", columns="account"),
        "qos": slurm_commands.list_accounts("qos", columns="name"),
    }
    with suppress(SlurmddpError, OSError):
        if key == "profile":
            return [name for file in job_files.find_configuration(Path.cwd()).files for name in file.profiles]
        if key in commands:
            return client.query(commands[key], os.environ, timeout_s=_LIMIT_S).split()
    return []
