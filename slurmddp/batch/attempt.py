"""One start of the ranks: its folder, ports and environment, and how it ended by the ranks' records.

Touches the run's folder; starts nothing.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp import variables
from slurmddp.batch.policy import Ending
from slurmddp.exit_codes import DONE, RETRYABLE
from slurmddp.runs.exit_records import decisive, read_records
from slurmddp.runs.layout import RunDir

_STEP: Final = re.compile(r"step-[0-9]{9}")
_PORT_TRIES: Final = 100
_RESET: Final = ("checkpoints", "model.pt", "rank-*.pt", "tensorboard")
"""What a run has that `--reset` sets aside."""


class Job(NamedTuple):
    """The job as its batch script's environment tells of it."""

    cluster: str
    job_id: str
    """`17`, or `17_3` for a task of an array."""
    number: int
    """SLURM_JOB_ID: of a task it is another one."""
    restarts: int
    """How often Slurm has put the job back into the queue."""
    host: str
    """The node of the batch script."""
    host_list: str
    hosts: tuple[str, ...]
    head: str
    """The node of rank 0."""
    world_size: int
    ranks_per_node: int
    run: RunDir

    @classmethod
    def read(cls, environ: Mapping[str, str], run: Path) -> "Job":
        """Return the job of this environment; `run` is its run's folder. Raises KeyError outside of a job."""
        hosts = tuple(environ.get(variables.HOSTS, "").split())
        per_node = _count(environ, "SLURM_NTASKS_PER_NODE") or 1
        return cls(
            cluster=environ.get("SLURM_CLUSTER_NAME", "cluster"),
            job_id=environ[variables.JOB_ID],
            number=int(environ["SLURM_JOB_ID"]),
            restarts=_count(environ, "SLURM_RESTART_COUNT"),
            host=environ.get("SLURMD_NODENAME", ""),
            host_list=environ["SLURM_JOB_NODELIST"],
            hosts=hosts,
            head=environ.get("MASTER_ADDR") or (hosts[0] if hosts else ""),
            world_size=_count(environ, "SLURM_NTASKS") or per_node * len(hosts),
            ranks_per_node=per_node,
            run=RunDir(run),
        )

    def attempt(self, number: int) -> str:
        """Return the name of the start of the ranks of that number in this allocation, from 0."""
        return f"{self.restarts}.{number}"


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def newest_checkpoint(run: RunDir) -> str:
    """Return the name of the newest checkpoint, which is the run's progress; `none` without one."""
    try:
        return max((path.name for path in run.checkpoints.iterdir() if _STEP.fullmatch(path.name)), default="none")
    except OSError:
        return "none"


def make_folder(folder: Path) -> None:
    """Make an attempt's folder; set aside what lies there from another cluster's job of the same number."""
    if folder.exists():
        folder.rename(f"{folder}.before-{time.time_ns()}")
    folder.mkdir(parents=True)


def reset(run: RunDir, number: int) -> Path | None:
    """Set aside what the run has, once: return the folder, None when it is there since an earlier start."""
    aside = run.before_reset(number)
    if aside.exists():
        return None
    part = aside.with_name(f"{aside.name}.part")
    part.mkdir(exist_ok=True)
    for path in [path for pattern in _RESET for path in run.path.glob(pattern)]:
        path.rename(part / path.name)
    part.rename(aside)
    return aside


def choose_ports(job: Job, number: int, ports: tuple[int, int], is_used: Callable[[int], bool]) -> tuple[int, int]:
    """Return two neighbouring ports that are free on this node.

    They are spread over the range by job and attempt; each attempt tries others than the one before it. The last pair
    that was tried is returned when none is free: the ranks say so, and the next attempt takes another.
    """
    pair = ports
    for attempt in range(_PORT_TRIES):
        spread = job.number * 7 + job.restarts * 31 + number * 13 + attempt
        first = ports[0] + 2 * (spread % ((ports[1] - ports[0] + 1) // 2))
        pair = first, first + 1
        if not any(map(is_used, pair)):
            break
    return pair


def used_ports(tables: Iterable[Path] = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))) -> set[int]:
    """Return the TCP ports in use on this node (proc(5): the second column is address:port, in hexadecimal)."""
    return {port for table in tables for port in _ports(table)}


def _ports(table: Path) -> Iterator[int]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        yield int(line.split()[1].rpartition(":")[2], 16)


def threads(job: Job, environ: Mapping[str, str]) -> int:
    """Return a rank's threads: its CPUs, but no more than its share of those that the node really has for us."""
    there = len(os.sched_getaffinity(0)) // job.ranks_per_node
    return max(1, min(there, _count(environ, "SLURM_CPUS_PER_TASK") or 1))


def read_ending(job: Job, attempt: str, launcher_status: int) -> Ending:
    """Return how the ranks ended by their own records.

    The launcher's status is the last resort, and 0 is no proof that ranks ran.
    """
    records = read_records(job.run.attempt(job.job_id, attempt))
    record = decisive(records)
    if record and not record.failed:
        return Ending(record.status, record.text)
    if record:
        silent = sorted(set(range(job.world_size)) - {one.rank for one in records})
        without = f"; no record of rank(s) {ranges(silent)}" if silent else ""
        return Ending(record.status, f"{record.text}; see {record.output}{without}")
    if launcher_status == DONE and not job.run.rank_begin(job.job_id, attempt, 0).exists():
        return Ending(RETRYABLE, "the ranks never met; srun says why, above")
    return Ending(launcher_status, "no rank left a record; the status is srun's")


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers in short: `0-3,7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
