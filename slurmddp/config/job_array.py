"""The tasks of a Slurm array, each a run of its own. A value; no I/O."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

from slurmddp.config.job_spec import JobSpec

FOLDER_LENGTH: Final = 100
"""Characters of a run's folder; file systems allow 255."""

_ANOTHER_KEY: Final = re.compile(r",[A-Za-z_][A-Za-z0-9_-]*=")
"""In a value: it would read as two."""


@dataclass(frozen=True)
class Task:
    """One run of an array."""

    values: Mapping[str, str]
    """What sets it apart, as it was given."""
    job: JobSpec
    """What it runs; all else is the same for all tasks."""

    @property
    def folder(self) -> str:
        """The name of the run's folder in that of the array, as in `lr=0.1,seed=1`."""
        return folder(self.values)


@dataclass(frozen=True)
class Array:
    """What one sbatch takes: task i runs the i-th of them."""

    tasks: tuple[Task, ...]
    max_parallel: int | None = None
    """How many may run at once; None for as many as Slurm gives."""

    @property
    def indices(self) -> str:
        """As `sbatch --array` has it."""
        limit = f"%{self.max_parallel}" if self.max_parallel else ""
        return f"0-{len(self.tasks) - 1}{limit}" if len(self.tasks) > 1 else f"0{limit}"

    def parts(self, size: int) -> Iterator["Array"]:
        """Yield arrays of at most `size` tasks that are together this one."""
        for start in range(0, len(self.tasks), size):
            yield Array(self.tasks[start : start + size], self.max_parallel)

    @cached_property
    def programs(self) -> tuple[JobSpec, ...]:
        """What its tasks run, each program once."""
        return tuple(dict.fromkeys(task.job for task in self.tasks))


def folder(values: Mapping[str, str]) -> str:
    """Return the name of a folder for these values; a digest stands for what no file name should hold."""
    whole = ",".join(f"{key}={value}" for key, value in values.items())
    name = re.sub(r"[^A-Za-z0-9._=,+-]", "_", whole)
    if any(_ANOTHER_KEY.search(str(value)) for value in values.values()):
        whole = "\0".join(map(str, chain.from_iterable(values.items())))
    if name == whole and len(name) <= FOLDER_LENGTH:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{name[: FOLDER_LENGTH - len(digest) - 1]}-{digest}"
