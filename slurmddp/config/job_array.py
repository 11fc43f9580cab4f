"""The tasks of a Slurm array, each with its own run. Values; no I/O."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from slurmddp.config.job_spec import JobSpec

FOLDER_LENGTH: Final = 100
"""The longest name of a run's folder; file systems allow 255 characters."""

_ANOTHER_KEY: Final = re.compile(r",[A-Za-z_][A-Za-z0-9_-]*=")
"""A value with this would look like two values."""


class Task(NamedTuple):
    """One run of an array."""

    values: Mapping[str, str]
    """The values of `--set` for this task, as given."""
    job: "JobSpec"
    """The job with this task's program; everything else is the same for all tasks."""

    @property
    def folder(self) -> str:
        """The run's folder in the array's folder, as in `lr=0.1,seed=1`."""
        return folder_name(self.values)


class Array(NamedTuple):
    """The tasks of one sbatch; the array task i runs the i-th."""

    tasks: tuple[Task, ...]
    max_parallel: int | None = None
    """How many tasks may run at once; None for no limit."""

    @property
    def indices(self) -> str:
        """The value of `sbatch --array`."""
        limit = f"%{self.max_parallel}" if self.max_parallel else ""
        return f"0-{len(self.tasks) - 1}{limit}" if len(self.tasks) > 1 else f"0{limit}"

    def parts(self, size: int) -> Iterator["Array"]:
        """Yield the array in parts of at most `size` tasks."""
        for start in range(0, len(self.tasks), size):
            yield Array(self.tasks[start : start + size], self.max_parallel)

    @property
    def programs(self) -> "tuple[JobSpec, ...]":
        """The jobs of the tasks, each program once."""
        return tuple(dict.fromkeys(task.job for task in self.tasks))


def folder_name(values: Mapping[str, str]) -> str:
    """Return a folder name for these values; a digest replaces a name that is too long or has special characters."""
    whole = ",".join(f"{key}={value}" for key, value in values.items())
    name = re.sub(r"[^A-Za-z0-9._=,+-]", "_", whole)
    if any(_ANOTHER_KEY.search(str(value)) for value in values.values()):
        whole = "\0".join(map(str, chain.from_iterable(values.items())))
    if name == whole and len(name) <= FOLDER_LENGTH:
        return name
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and few names are so long

    digest = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{name[: FOLDER_LENGTH - len(digest) - 1]}-{digest}"
