"""Asks Slurm about jobs and nodes: runs the commands and parses the answers. No files.

`queue`, `accounting`, `last_run` and `controller` raise nothing. Each has one time limit, and tries a second time when
the answer was lost and there is time left.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from slurmddp.errors import ClusterError, UsageError
from slurmddp.slurm import client, commands
from slurmddp.slurm.client import TIMEOUT_S, Answer, LostAnswerError, check_reached, was_lost
from slurmddp.slurm.environment import user
from slurmddp.slurm.job_info import JobId, JobInfo, Listing
from slurmddp.slurm.parsing import parse_accounting, parse_nodes_down, parse_queue, parse_show

_NO_SUCH_JOB: Final = "Invalid job id"
TRIES: Final = 2
PAUSE_S: Final = 0.5

Environ = Mapping[str, str]


def jobs(job_ids: Sequence[str], environ: Environ) -> list[JobInfo]:
    """Return the jobs that the controller still knows; an array has a row for each task.

    Raises ClusterError when it does not answer.
    """
    command = commands.list_queue("--states=all", "--array", f"--jobs={','.join(job_ids)}")
    return parse_queue(_ask_about_jobs(command, "squeue", environ).stdout)


def show(job_id: str, environ: Environ) -> list[JobInfo]:
    """Return a job, or all tasks of an array, from the controller; empty when it does not know the job.

    Raises ClusterError when it does not answer.
    """
    return parse_show(_ask_about_jobs(commands.show("job", job_id), f"scontrol show job {job_id}", environ).stdout)


def show_one(job_id: str, environ: Environ) -> JobInfo:
    """Return one job from the controller, which is no array.

    Raises UsageError for an array, ClusterError when the controller does not answer or know the job.
    """
    found = show(job_id, environ)
    if not found:
        hint = "`slurmddp status` lists the jobs; a run that has ended continues when it is submitted again"
        raise ClusterError(f"Slurm does not know job {job_id}; {hint}")
    if len(found) > 1:
        raise UsageError(f"job {job_id} is an array; give one task of it, as in {found[-1].job_id}")
    return found[0]


def _ask_about_jobs(command: Sequence[str], what: str, environ: Environ) -> Answer:
    """Return an answer, which may be that there is no such job. Raises ClusterError without one."""
    answer = client.ask(command, environ)
    check_reached(answer)
    if not _has_answered(answer):
        raise ClusterError(f"{what}: {answer.reason}")
    return answer


def queue(job_ids: Sequence[str], environ: Environ, *, timeout_s: float) -> Listing:
    """Return these jobs from squeue, with ended ones; for many, all jobs of the user."""
    return _list(commands.list_jobs(job_ids), lambda said: Listing(tuple(parse_queue(said))), environ, timeout_s)


def accounting(job_ids: Sequence[str], since: "datetime | None", environ: Environ, *, timeout_s: float) -> Listing:
    """Return these jobs from sacct, the oldest first; each requeue is a separate job.

    For many, return all jobs that the user has submitted `since`.
    """
    return _list(commands.list_accounted(job_ids, since), parse_accounting, environ, timeout_s)


def last_run(job_id: str, environ: Environ, *, timeout_s: float) -> Listing:
    """Return one job from sacct since its last requeue, with the memory of its steps."""
    return _list([*commands.LIST_ACCOUNTED_STEPS, f"--jobs={job_id}"], parse_accounting, environ, timeout_s)


def controller(job_ids: Sequence[str], environ: Environ, *, timeout_s: float) -> Listing:
    """Return some jobs, of an array all tasks, from the controller: it is asked about all of them by one process."""
    asked = "".join(f"show job {job_id}\n" for job_id in job_ids)
    return _list(commands.SHOW_LINES, lambda said: Listing(tuple(parse_show(said))), environ, timeout_s, asked.encode())


def _list(
    command: Sequence[str], parse: Callable[[str], Listing], environ: Environ, timeout_s: float, stdin: bytes = b""
) -> Listing:
    """Run a command, and again when the answer was lost, within the time."""
    deadline = time.monotonic() + timeout_s
    found = Listing(silence="not asked")
    for _ in range(TRIES):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            answer = client.ask(command, environ, stdin=stdin, timeout_s=left_s)
        except ClusterError as error:
            return Listing(silence=str(error))
        said = answer.reason.rpartition("; ")[2].removeprefix("slurm_load_jobs error: ")
        found = parse(answer.stdout) if _has_answered(answer) else Listing(silence=said)
        if not was_lost(answer):
            break
        time.sleep(min(PAUSE_S, max(0.0, deadline - time.monotonic())))
    return found


def _has_answered(answer: Answer) -> bool:
    """Return whether a program answered; an unknown job is also an answer."""
    return answer.status == 0 or _NO_SUCH_JOB in answer.stderr


def find_job(
    *, name: str, script: bytes, since: datetime, known: Sequence[str], environ: Environ, ended: bool = True
) -> "JobId | None":
    """Find a job whose answer from sbatch was lost, by this user, name, time and script; skip the jobs in `known`.

    Without `ended`, only a job that is queued or running is found.

    `since` is the start of sbatch by the clock of this machine, which may differ by five minutes from the controller's.
    """
    states = ["--states=all"] if ended else []
    answer = client.ask(commands.list_queue(*states, f"--user={user()}", f"--name={name}"), environ)
    if answer.status != 0:
        raise LostAnswerError(answer.reason)
    digest = _sha256(script)
    for candidate in parse_queue(answer.stdout):
        recent = candidate.submitted is None or candidate.submitted >= since - timedelta(minutes=5)
        number = candidate.number
        if recent and number not in known and script_digest(number, environ) == digest:
            return JobId(number)
    return None


def script_digest(job_id: str, environ: Environ, *, timeout_s: float = TIMEOUT_S) -> "str | None":
    """Return the sha256 of the controller's copy of a job's script; None without one."""
    with suppress(ClusterError):
        answer = client.ask([*commands.WRITE_SCRIPT, job_id, "-"], environ, timeout_s=timeout_s)
        return _sha256(answer.stdout.encode("utf-8", "surrogateescape")) if answer.status == 0 else None
    return None


def _sha256(content: bytes) -> str:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and few queries need it

    return hashlib.sha256(content).hexdigest()


def running_on(partition: str, environ: Environ, *, timeout_s: float) -> list[JobInfo]:
    """Return the jobs on the nodes of a partition, as far as Slurm shows them to this user; none without an answer."""
    nodes = client.try_query(commands.list_nodes(f"--partition={partition}"), environ, timeout_s=timeout_s).split()
    command = commands.list_queue("--states=RUNNING", f"--nodelist={','.join(nodes)}")
    return parse_queue(client.try_query(command, environ, timeout_s=timeout_s)) if nodes else []


def pending_before(job: JobInfo, environ: Environ, *, timeout_s: float) -> list[JobInfo]:
    """Return the jobs of its partition that wait for nodes before it, the next one first; none without an answer."""
    command = commands.list_queue("--states=PENDING", f"--partition={job.partition}", "--sort=-p,i")
    waiting = parse_queue(client.try_query(command, environ, timeout_s=timeout_s))
    before = takewhile(lambda other: other.number != job.number, waiting)
    return [other for other in before if other.reason in ("Resources", "Priority")]


def lost_nodes(host_list: str, environ: Environ, *, timeout_s: float) -> tuple[str, ...]:
    """Return the nodes of a host list that are down, failing, or do not respond; none when Slurm does not answer."""
    command = commands.list_nodes("--Node", f"--nodes={host_list}", columns="%N %T")
    return parse_nodes_down(client.try_query(command, environ, timeout_s=timeout_s))
