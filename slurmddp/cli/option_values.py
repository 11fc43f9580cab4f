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
from slurmddp.slurm.environment import user

_LIMIT_S: Final = 2.0
"""A shell waits for the answer."""
_ACCOUNTING: Final = ("sacctmgr", "--noheader", "--parsable2", "show")


def complete_value(field: Field, incomplete: str) -> list[str]:
    """Return the values that begin with a text; none when Slurm does not answer soon."""
    found = field.choices or _find_values(field.key)
    return sorted({word for word in found if word.startswith(incomplete) and re.fullmatch(r"[\w.:+-]+", word)})


def _find_values(key: str) -> list[str]:
    nodes = ("sinfo", "--noheader", "--Node", "--format=%N")
    commands = {
        "partition": ("sinfo", "--noheader", "--format=%R"),
        "nodelist": nodes,
        "exclude": nodes,
        "account": (*_ACCOUNTING, "associations", f"user={user()}", "format=account"),
        "qos": (*_ACCOUNTING, "qos", "format=name"),
    }
    with suppress(SlurmddpError, OSError):
        if key == "profile":
            return [name for file in job_files.find_configuration(Path.cwd()).files for name in file.profiles]
        if key in commands:
            return client.query(commands[key], os.environ, timeout_s=_LIMIT_S).split()
    return []
