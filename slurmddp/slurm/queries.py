"""Queries Slurm about jobs: the commands, and functions that run them and parse the answers. No files.

`queue`, `accounting`, `last_run` and `controller` raise nothing. Each has one time limit, and tries a second time when
the answer was lost and there is time left.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.slurm import client
from slurmddp.slurm.client import TIMEOUT_S, Answer, LostAnswerError, check_reached, was_lost
from slurmddp.slurm.environment import user
from slurmddp.slurm.job_info import JobId, JobInfo, Listing
from slurmddp.slurm.parsing import MARK, parse_accounting, parse_nodes_down, parse_queue, parse_show
from slurmddp.slurm.states import UNKNOWN

_NO_SUCH_JOB: Final = "Invalid job id"
TRIES: Final = 2
PAUSE_S: Final = 0.5
MANY: Final = 500
"""With more jobs than this, all jobs of the user are listed: squeue compares each job with each id, and Linux limits
an argument to 128 KiB."""

_FIELDS: Final = {
    "id": "%i",
    "state": "%T",
    "submit": "%V",
    "start": "%S",
    "end": "%e",
    "elapsed": "%M",
    "limit": "%l",
    "nodes": "%N",
    "partition": "%P",
    "user": "%u",
    "reason": "%r",
    "name": "%j",
}
_LAYOUT: Final = MARK + "|".join(f"{key}={field}" for key, field in _FIELDS.items())
_COLUMNS: Final = "JobID,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,ExitCode,Partition,NodeList,User,Reason,JobName"
_STATE_COLUMNS: Final = "JobID,State,Submit,Reason"
_STEPS_COLUMNS: Final = "JobID,State,Submit,ExitCode,NodeList,Reason,MaxRSS,JobName"

Environ = Mapping[str, str]


def jobs_command(job_ids: Sequence[str]) -> list[str]:
    """Return the command that lists these jobs, with ended ones that the controller still knows.

    An array has a line for each task.
    """
    return ["squeue", "--noheader", "--array", "--states=all", f"--jobs={','.join(job_ids)}", f"--format={_LAYOUT}"]


def jobs(job_ids: Sequence[str], environ: Environ) -> list[JobInfo]:
    """Return the jobs that the controller still knows. Raises ClusterError when it does not answer."""
    answer = client.ask(jobs_command(job_ids), environ)
    if not _has_answered(answer):
        raise ClusterError(f"squeue: {answer.reason}")
    return parse_queue(answer.stdout)


def job(job_id: str, environ: Environ) -> JobInfo:
    """Return one job from squeue, or from the accounting when it has ended; else with the state UNKNOWN.

    Raises ClusterError when the controller does not answer.
    """
    known = jobs([job_id], environ) or [job for job in accounted([job_id], environ) if job.has_ended]
    return known[-1] if known else JobInfo(job_id=job_id, state=UNKNOWN, source="squeue")


def accounted(job_ids: Sequence[str], environ: Environ) -> list[JobInfo]:
    """Return what the accounting knows of these jobs; nothing where there is none, or it does not answer."""
    which = f"--jobs={','.join(job_ids)}"
    try:
        answer = client.ask(["sacct", "--allocations", "--parsable2", which, f"--format={_STATE_COLUMNS}"], environ)
    except ClusterError:
        return []
    return list(parse_accounting(answer.stdout).jobs) if answer.status == 0 else []


def show_command(job_id: str) -> list[str]:
    """Return the command that shows one job with all values of the controller."""
    return ["scontrol", "--oneliner", "show", "job", job_id]


def show(job_id: str, environ: Environ) -> list[JobInfo]:
    """Return a job, or all tasks of an array, from the controller; empty when it does not know the job.

    Raises ClusterError when it does not answer.
    """
    answer = client.ask(show_command(job_id), environ)
    check_reached(answer)
    if not _has_answered(answer):
        raise ClusterError(f"scontrol show job {job_id}: {answer.reason}")
    return parse_show(answer.stdout) if answer.status == 0 else []


def output_file(job_id: str, environ: Environ) -> Path | None:
    """Return the file of a job's standard output, by the controller; None when it does not know the job.

    Raises ClusterError when it does not answer.
    """
    answer = client.ask(["scontrol", "show", "job", job_id], environ)
    check_reached(answer)
    if not _has_answered(answer):
        raise ClusterError(f"scontrol show job {job_id}: {answer.reason}")
    found = re.search(r"^\s*StdOut=(/.+)$", answer.stdout, re.MULTILINE)
    return Path(found[1]) if found else None


def queue_command(job_ids: Sequence[str]) -> list[str]:
    """Return the command that lists jobs, each in a line that begins with MARK."""
    which = f"--user={user()}" if len(job_ids) > MANY else f"--jobs={','.join(job_ids)}"
    return ["squeue", "--noheader", "--states=all", which, f"--format={_LAYOUT}"]


def dependencies_command() -> list[str]:
    """Return the command that lists the user's queued jobs and what each waits for."""
    return ["squeue", "--noheader", "--states=PENDING", f"--user={user()}", "--format=%F %E"]


def own_jobs_command() -> list[str]:
    """Return the command that lists the numbers of the user's jobs in the queue, waiting or running."""
    return ["squeue", "--noheader", "--array", f"--user={user()}", "--format=%A"]


def queue(job_ids: Sequence[str], environ: Environ, *, timeout_s: float) -> Listing:
    """Return these jobs from squeue, with ended ones; for many, all jobs of the user."""
    return _list(queue_command(job_ids), lambda said: Listing(tuple(parse_queue(said))), environ, timeout_s)


def accounting_command(job_ids: Sequence[str], since: datetime | None) -> list[str]:
    """Return the command that lists jobs of the accounting, with a line of column names."""
    which = [f"--jobs={','.join(job_ids)}"]
    if len(job_ids) > MANY:
        start = (since or datetime.fromtimestamp(0).astimezone()).strftime("%Y-%m-%dT%H:%M:%S")
        which = [f"--user={user()}", f"--starttime={start}"]
    return ["sacct", "--allocations", "--parsable2", "--duplicates", *which, f"--format={_COLUMNS}"]


def accounting(job_ids: Sequence[str], since: datetime | None, environ: Environ, *, timeout_s: float) -> Listing:
    """Return these jobs from sacct, the oldest first; each requeue is a separate job.

    For many, return all jobs that the user has submitted `since`.
    """
    return _list(accounting_command(job_ids, since), parse_accounting, environ, timeout_s)


def last_run(job_id: str, environ: Environ, *, timeout_s: float) -> Listing:
    """Return one job from sacct since its last requeue, with the memory of its steps."""
    command = ["sacct", "--parsable2", f"--jobs={job_id}", f"--format={_STEPS_COLUMNS}"]
    return _list(command, parse_accounting, environ, timeout_s)


def controller(job_id: str, environ: Environ, *, timeout_s: float) -> Listing:
    """Return one job, or all tasks of an array, from the controller."""
    return _list(show_command(job_id), lambda said: Listing(tuple(parse_show(said))), environ, timeout_s)


def add_exit_status(job: JobInfo, environ: Environ, *, timeout_s: float) -> JobInfo:
    """Return a job of squeue, which shows no exit status, with that of the controller; without one as it is."""
    if job.exit_status or job.source != "squeue":
        return job
    shown = controller(job.job_id, environ, timeout_s=timeout_s).jobs
    return next((job._replace(exit_status=one.exit_status) for one in shown if one.job_id == job.job_id), job)


def _list(command: Sequence[str], parse: Callable[[str], Listing], environ: Environ, timeout_s: float) -> Listing:
    """Run a command, and again when the answer was lost, within the time."""
    deadline = time.monotonic() + timeout_s
    found = Listing(silence="not asked")
    for _ in range(TRIES):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            answer = client.ask(command, environ, timeout_s=left_s)
        except ClusterError as error:
            return Listing(silence=str(error))
        found = parse(answer.stdout) if _has_answered(answer) else _silent(answer)
        if not was_lost(answer):
            break
        time.sleep(min(PAUSE_S, max(0.0, deadline - time.monotonic())))
    return found


def _has_answered(answer: Answer) -> bool:
    """Return whether a program answered; an unknown job is also an answer."""
    return answer.status == 0 or _NO_SUCH_JOB in answer.stderr


def _silent(answer: Answer) -> Listing:
    return Listing(silence=answer.reason.rpartition("; ")[2].removeprefix("slurm_load_jobs error: "))


def find_job(
    *, name: str, user: str, script: bytes, since: datetime, known: Sequence[str], environ: Environ
) -> JobId | None:
    """Find a job whose answer from sbatch was lost, by user, name, time and script; skip the jobs in `known`.

    `since` is the start of sbatch by the clock of this machine, which may differ by five minutes from the controller's.
    """
    answer = client.ask(
        ["squeue", "--noheader", "--states=all", f"--user={user}", f"--name={name}", f"--format={_LAYOUT}"],
        environ,
    )
    if answer.status != 0:
        raise LostAnswerError(answer.reason)
    digest = _sha256(script)
    for candidate in parse_queue(answer.stdout):
        recent = candidate.submitted is None or candidate.submitted >= since - timedelta(minutes=5)
        number = candidate.number
        if recent and number not in known and script_digest(number, environ) == digest:
            return JobId(number)
    return None


def batch_script(job_id: str, environ: Environ, *, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return the controller's copy of a job's script. Raises ClusterError when it has none."""
    answer = client.ask(["scontrol", "write", "batch_script", job_id, "-"], environ, timeout_s=timeout_s)
    if answer.status != 0:
        raise ClusterError(f"scontrol write batch_script {job_id}: {answer.reason}")
    return answer.stdout.encode("utf-8", "surrogateescape")


def script_digest(job_id: str, environ: Environ, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """Return the sha256 of the controller's copy of a job's script; None without one."""
    try:
        return _sha256(batch_script(job_id, environ, timeout_s=timeout_s))
    except ClusterError:
        return None


def running_on(partition: str, environ: Environ, *, timeout_s: float) -> list[JobInfo]:
    """Return the jobs on the nodes of a partition, as far as Slurm shows them to this user; none without an answer."""
    try:
        nodes = client.ask(
            ["sinfo", "--noheader", f"--partition={partition}", "--format=%N"], environ, timeout_s=timeout_s
        )
        which = f"--nodelist={','.join(nodes.stdout.split())}"
        answer = client.ask(
            ["squeue", "--noheader", "--states=RUNNING", which, f"--format={_LAYOUT}"], environ, timeout_s=timeout_s
        )
    except ClusterError:
        return []
    return parse_queue(answer.stdout)


def pending_before(job: JobInfo, environ: Environ, *, timeout_s: float) -> list[JobInfo]:
    """Return the jobs of its partition that wait for nodes before it, the next one first; none without an answer."""
    command = ["squeue", "--noheader", "--states=PENDING", f"--partition={job.partition}", "--sort=-p,i"]
    try:
        answer = client.ask([*command, f"--format={_LAYOUT}"], environ, timeout_s=timeout_s)
    except ClusterError:
        return []
    before = takewhile(lambda other: other.number != job.number, parse_queue(answer.stdout))
    return [other for other in before if other.reason in ("Resources", "Priority")]


def lost_nodes(host_list: str, environ: Environ, *, timeout_s: float) -> tuple[str, ...]:
    """Return the nodes of a host list that are down, failing, or do not respond; none when Slurm does not answer."""
    command = ["sinfo", "--noheader", "--Node", f"--nodes={host_list}", "--format=%N %T"]
    try:
        answer = client.ask(command, environ, timeout_s=timeout_s)
    except ClusterError:
        return ()
    return parse_nodes_down(answer.stdout)


def _sha256(content: bytes) -> str:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, and few queries need it

    return hashlib.sha256(content).hexdigest()


def requeue_command(job_id: str) -> list[str]:
    """Return the command that requeues a running job; a cancelled job stays cancelled."""
    return ["scontrol", "requeue", "Incomplete", job_id]


def update_command(job_id: str, key: str, value: str) -> list[str]:
    """Return the command that changes one value of a job in the queue."""
    return ["scontrol", "update", f"JobId={job_id}", f"{key}={value}"]


def nodes_command(host_list: str) -> list[str]:
    """Return the command that shows nodes; it fails for a node that the cluster does not have."""
    return ["scontrol", "--oneliner", "show", "nodes", host_list]


def node_names(environ: Environ, partitions: str = "") -> list[str]:
    """Return the names of the nodes, of all or of some partitions. Raises ClusterError when Slurm does not answer."""
    which = [f"--partition={partitions}"] if partitions else []
    return sorted(set(client.query(["sinfo", "--noheader", "--Node", *which, "--format=%N"], environ).split()))
