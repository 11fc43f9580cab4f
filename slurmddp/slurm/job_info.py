"""A job as one of Slurm's programs shows it. Values; no processes, no files."""

from __future__ import annotations
import re
from datetime import datetime
from functools import cache
from typing import Final, Literal, NamedTuple

from slurmddp.outcome import Phase
from slurmddp.slurm.states import has_ended, outcome_of

Source = Literal["squeue", "sacct", "scontrol", "files"]
"""Which program showed the job; `files` are the run's own."""
LOCAL: Final = "local-"
"""Prefix of the id of a run on this machine, which is no Slurm job."""
_JOB_ID: Final = re.compile(r"[0-9]+(_[0-9]+)?")


def is_job_id(text: str) -> bool:
    """Return whether a text is a job's id as a person types it: `17`, or `17_3` for a task of an array."""
    return _JOB_ID.fullmatch(text) is not None


class JobRef(NamedTuple):
    """The parts of a job's id: of `17_3` the number `17` and the suffix `_3`."""

    array_id: str
    """Number of the job; of a task, the number of its array. The whole id of a run on this machine."""
    suffix: str = ""
    """`_3` for a task, `_[4-9]` for tasks that wait together, `+1` for a part of a heterogeneous job."""

    @classmethod
    @cache
    def parse(cls, job_id: str) -> JobRef:
        """Return the parts of an id; every text is accepted."""
        array_id = re.split("[_+]", job_id, maxsplit=1)[0]
        return cls(array_id, job_id[len(array_id) :])

    def __str__(self) -> str:
        """Return the id."""
        return self.array_id + self.suffix

    @property
    def is_local(self) -> bool:
        """Whether it is a run on this machine, which is no Slurm job."""
        return self.array_id.startswith(LOCAL)

    @property
    def is_task(self) -> bool:
        """Whether it is one task of an array."""
        return self.task_index is not None

    @property
    def is_task_list(self) -> bool:
        """Whether it stands for tasks of an array that wait together."""
        return self.suffix.startswith("_[")

    @property
    def task_index(self) -> int | None:
        """The index of the task in its array; None for what is not one task."""
        return int(self.suffix[1:]) if self.suffix and re.fullmatch("_[0-9]+", self.suffix) else None


class JobId(NamedTuple):
    """A job id from sbatch; it has the cluster only where several clusters share a database."""

    number: str
    cluster: str = ""


class JobInfo(NamedTuple):
    """A job; empty or None for values that the program does not show."""

    job_id: str
    """`17`, `17_3` for a task of an array, `17_[4-9]` for tasks that wait together."""
    state: str = ""
    """Slurm's word (states.py); `UNKNOWN` where there is none, empty where no program was asked."""
    source: Source = "files"
    name: str = ""
    user: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    """For a queued job, the expected start."""
    ended: datetime | None = None
    """For a running job, the end of its time limit."""
    eligible: datetime | None = None
    """The earliest start, by the controller's clock."""
    elapsed_s: int | None = None
    limit_s: int | None = None
    """The time limit; None for none, 0 for one that Slurm prints as INVALID."""
    nodes: str = ""
    """A host list: `n[1-4]`."""
    node_count: int | None = None
    """The smallest number of nodes that it accepts."""
    partition: str = ""
    reason: str = ""
    exit_status: str = ""
    """Exit status and signal of the batch script: `77:0`."""
    restarts: int | None = None
    requeue: bool | None = None
    """Whether Slurm may requeue it."""
    expedited: bool = False
    """Whether Slurm starts it at once when it has requeued it, and holds it when its script fails (25.11)."""
    batch_host: str = ""
    preempted: bool = False
    """Whether PreemptTime is set."""
    dependency: str = ""
    """The jobs that it still waits for, in sbatch's form."""
    excluded_nodes: str = ""
    """A host list."""
    required_nodes: str = ""
    """The nodes it must have (ReqNodeList), a host list."""
    output: str = ""
    """The path of its standard output."""
    errors: str = ""
    """The path of its standard error."""
    max_rss: str = ""
    """The largest memory of one of its tasks, as `3904M`; from sacct, with steps."""
    last_step: str = ""
    """The state of the step that started last; from sacct, with steps."""
    cancelled_by: str = ""
    """The number of the user who cancelled it; from sacct."""

    @property
    def phase(self) -> Phase:
        """The phase of the job's life."""
        return outcome_of(self.state).meaning.phase

    @property
    def was_cancelled_in_queue(self) -> bool:
        """Whether it was cancelled while it waited: Slurm gives that time as its start and its end, but no nodes."""
        return self.state == "CANCELLED" and not self.nodes

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again by itself."""
        return has_ended(self.state)

    @property
    def number(self) -> str:
        """The number of the job, or of the array that it belongs to."""
        return self.ref.array_id

    @property
    def ref(self) -> JobRef:
        """The parts of its id."""
        return JobRef.parse(self.job_id)


class Listing(NamedTuple):
    """The jobs that a program listed."""

    jobs: tuple[JobInfo, ...] = ()
    silence: str = ""
    """Why it listed none; empty when it answered."""
