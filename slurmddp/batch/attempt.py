"""One attempt: its folder, ports and threads, and its result by the exit records of the ranks.

Reads and writes the run's folder; starts no process.
"""

import itertools
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp import variables
from slurmddp.batch.policy import Result
from slurmddp.exit_codes import DONE, FAILED, RETRYABLE
from slurmddp.runs.checkpoints import newest_program_checkpoint
from slurmddp.runs.exit_records import NO_RANK, decisive_record, read_record, read_records
from slurmddp.runs.files import create_exclusively
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import HERE
from slurmddp.runs.submissions import submissions
from slurmddp.slurm.hostlist import format_ranges
from slurmddp.slurm.job_info import LOCAL
from slurmddp.slurm.values import parse_number

_RESET: Final = ("checkpoints*", "trainings", "model.pt", "rank-*.pt", "tensorboard", "tracker-id", "mlflow-run-id")
"""The files of a run that `--reset` moves away."""
_PORT_TRIES: Final = 100
_BY_SIGNAL: Final = 128
"""The status of a program that a signal has ended is this, or more."""


class Job(NamedTuple):
    """The job, from the environment of its batch script."""

    cluster: str
    job_id: str
    """`17`, or `17_3` for a task of an array."""
    number: int
    """SLURM_JOB_ID, which differs from `job_id` in a task of an array."""
    restarts: int
    """How often Slurm has requeued the job."""
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
        """Return the job of this environment, with the folder `run`. Raises KeyError outside of a job."""
        hosts = tuple(environ.get(variables.HOSTS, "").split())
        per_node = _count(environ, "SLURM_NTASKS_PER_NODE") or 1
        return cls(
            cluster=HERE
            if environ[variables.JOB_ID].startswith(LOCAL)
            else environ.get("SLURM_CLUSTER_NAME", "cluster"),
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


def _count(environ: Mapping[str, str], name: str) -> int:
    return parse_number(environ.get(name, "")) or 0


def take_training(job: Job, words: str) -> tuple[RunDir, Path]:
    """Return the run as one training of a user's own script has it, and the file that says when that is done.

    A script may start several. One is recognised by `words`, the values that differ between the starts, and by how many
    with the same words were done in this allocation: only the first of those is sure to be the same in another one.
    """
    folder, key = job.run.training_marks, f"{zlib.crc32(words.encode(errors='replace')):08x}"
    folder.mkdir(exist_ok=True)
    marks = (folder / f"{key}.{number}.{job.job_id}.{job.restarts}" for number in itertools.count())
    mark = next(path for path in marks if not path.exists() or not path.read_text())
    mark.touch()
    name = mark.name if any(folder.glob(f"{key}.[1-9]*")) else key
    create_exclusively(folder / "first", name)
    is_first = (folder / "first").read_text() == name
    return job.run._replace(training="checkpoints" if is_first else f"checkpoints-{name}"), mark


def _starts(run: RunDir, job_id: str) -> list[str]:
    """Return the attempts of a job that are of this training."""
    notes = {name: run.training_note(job_id, name) for name in run.attempts(job_id)}
    of = {name: note.read_text() if note.exists() else "checkpoints" for name, note in notes.items()}
    return [name for name in of if of[name] == run.training]


def build_resume_variables(job: Job, attempt: str, pattern: str) -> dict[str, str]:
    """Return what a program needs to know in order to resume: earlier starts, and checkpoints since the first of them.

    A start resumes when all ranks of an earlier one have met: before that, COMMAND does not run. The starts of the jobs
    before this one in its chain count, too; those of other trainings of the run do not.
    """
    names = _starts(job.run, job.job_id)
    begins = [job.run.rank_begin(job.job_id, name, 0) for name in names[: names.index(attempt)]]
    after = {record["job"]: record.get("after") for record in submissions(job.run)}
    earlier = after.pop(job.job_id, None)
    while earlier:
        begins += [job.run.rank_begin(earlier, name, 0) for name in _starts(job.run, earlier)]
        earlier = after.pop(earlier, None)
    values = {variables.RESTARTS: str(len(begins)), variables.CHECKPOINT_DIR: str(job.run.checkpoints)}
    began = min((path.stat().st_mtime for path in begins if path.exists()), default=None)
    if began is None:
        return values
    if not pattern:
        return values | {variables.RESUME: "1"}
    newest = newest_program_checkpoint(pattern)
    if newest is None or newest.saved_at <= began:
        return values
    return values | {variables.RESUME: "1", variables.CHECKPOINT: newest.path}


def reset_run(run: RunDir, number: int) -> "Path | None":
    """Move the run's state to a folder and return it; None when an earlier start has done it."""
    aside = run.before_reset(number)
    if aside.exists():
        return None
    part = aside.with_name(f"{aside.name}.part")
    part.mkdir(exist_ok=True)
    for path in [path for pattern in _RESET for path in run.path.glob(pattern)]:
        path.rename(part / path.name)
    part.rename(aside)
    return aside


def count_threads(job: Job, environ: Mapping[str, str]) -> int:
    """Return the threads of a rank: its CPUs, at most its share of the CPUs that this process may use."""
    share = len(os.sched_getaffinity(0)) // job.ranks_per_node
    return max(1, min(share, _count(environ, "SLURM_CPUS_PER_TASK") or 1))


def choose_ports(job: Job, number: int, ports: tuple[int, int], is_free: Callable[[int], bool]) -> tuple[int, int]:
    """Return two neighbouring ports that are free on this node: MASTER_PORT, and one for the rendezvous.

    Job and attempt decide where in the range the search begins, so the next attempt gets other ports. Without a free
    pair the last one is returned: the ranks fail, and the next attempt tries others.
    """
    begin, pairs = job.number * 7 + job.restarts * 31 + number * 13, (ports[1] - ports[0] + 1) // 2
    tried = [ports[0] + 2 * ((begin + attempt) % pairs) for attempt in range(_PORT_TRIES)]
    first = next((port for port in tried if is_free(port) and is_free(port + 1)), tried[-1])
    return first, first + 1


def is_port_free(port: int) -> bool:
    """Return whether a server can listen at a port of this node now."""
    import socket  # noqa: PLC0415 - needed only to start the ranks, and every start would pay for it

    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError:
        return False
    return True


def read_result(job: Job, attempt: str, launcher_status: int, *, own_launch: bool = False) -> Result:
    """Return how the ranks ended, by their exit records.

    Without a record, the launcher's status counts; 0 counts only when rank 0 has begun. The status of an `own_launch`
    is judged as Slurm does: 0 is done, and what is less than 128 has failed for good. It may have more to do than its
    ranks: when it has failed, the record of rank 0 that the training is done does not count.
    """
    if failed := read_record(job.run.before_ranks_record(job.job_id, attempt), NO_RANK):
        is_final = DONE < failed.status < _BY_SIGNAL and failed.status != RETRYABLE
        return Result(FAILED if is_final else failed.status, failed.text)
    records = read_records(job.run.attempt(job.job_id, attempt))
    record = decisive_record(records)
    is_refuted = own_launch and launcher_status != DONE and bool(record and record.status == DONE)
    if record and not record.failed and not is_refuted:
        return Result(record.status, record.text)
    if record and record.failed:
        silent = sorted(set(range(job.world_size)) - {one.rank for one in records})
        without = [f"no record of rank{'s' * (len(silent) > 1)} {format_ranges(silent)}"] if silent else []
        parts = [record.text if own_launch else f"{record.text}; see {record.output}", *without]
        is_of_survivor = record.status == RETRYABLE  # it has lost a rank that was killed
        return Result(record.status, "; ".join(reversed(parts) if is_of_survivor else parts))
    if own_launch:
        status = FAILED if DONE < launcher_status < _BY_SIGNAL else launcher_status
        records_say = "although rank 0 has recorded its end" if is_refuted else "and no rank left a record"
        return Result(status, f"the launch ended with status {launcher_status}, {records_say}")
    if launcher_status == DONE and not job.run.rank_begin(job.job_id, attempt, 0).exists():
        return Result(
            RETRYABLE, "no rank has begun; srun says why, above, unless the launch block of a template starts none"
        )
    return Result(launcher_status, "no rank left a record of its end, as after kill -9; the status is srun's")
