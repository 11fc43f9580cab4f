"""What Slurm says of a job before it is submitted and after, and what the user is told of it. Nothing is queued."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from slurmddp.cluster.limits import waits_for_nodes
from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import ClusterError
from slurmddp.runs.facts import find_state, is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions
from slurmddp.script.snapshot import Code
from slurmddp.slurm import queries, sbatch_command
from slurmddp.slurm.client import LostAnswerError, RefusedError
from slurmddp.slurm.job_info import JobId, JobInfo
from slurmddp.slurm.pending_reasons import warning
from slurmddp.slurm.values import LATEST_START, slurm_time
from slurmddp.submission.submit_once import Notice

_AT_ONCE: Final = timedelta(minutes=2)


def ask_start(request: Request, text: bytes, environ: Mapping[str, str], notice: Notice) -> datetime | None:
    """Return when Slurm expects the job to start; None when it does not say.

    Raises ClusterError when it refuses, and for ranks and GPUs that depend on a cluster that did not answer.
    """
    spec = request.resolved.spec
    try:
        start = sbatch_command.expected_start(sbatch_command.test_only(text, environ))
    except LostAnswerError:
        start = None
    except RefusedError as error:
        if not (request.cluster and waits_for_nodes(spec, request.cluster)):
            raise ClusterError(f"{error}; --force submits without asking this first") from error
        notice(f"the job waits for nodes that are down or drained now ({error})")
        return None
    if request.silence and not (spec.script or spec.gpus_per_node or spec.ntasks_per_node):
        raise ClusterError(
            f"what a node has is not known ({request.silence}); give --gpus-per-node or --ntasks-per-node"
        )
    return start


def explain_answer(request: Request, script: bytes, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what sbatch says to the script, and the jobs that it depends on and that Slurm does not know."""
    said = sbatch_command.test_only(script, environ)
    start = sbatch_command.expected_start(said)
    far = start is not None and start - datetime.now(UTC) >= LATEST_START
    yield "it starts when the jobs before it end, which have no time limit" if far else said
    for job in re.findall(r"(?<![+\w])\d+", request.resolved.spec.dependency or ""):
        if not queries.show(job, environ):
            yield f"Slurm does not know job {job}: this job would not wait for it"


def report_run_state(request: Request, run: RunDir, code: Code | None, notice: Notice) -> None:
    """Say where the run goes on, and when it does so with other code than its last job."""
    for last in submissions(run)[-1:]:
        if code and last.get("code") not in (None, code.digest):
            said = f"run {run.path.name} continues with the code as it is now, {code.digest}"
            notice(f"{said}; job {last['job']} has {last['code']}")
    if request.resolved.spec.reset or request.array:
        return
    if state := find_state(run):
        finished = "had finished; it " if is_finished(run) else ""
        notice(f"run {run.path.name} {finished}continues from {state}; --reset starts it over")
    elif is_finished(run):
        notice(f"run {run.path.name} is finished: COMMAND begins anew, unless it loads a checkpoint of its own")


def report_changes(
    spec: JobSpec, job_id: JobId, start: datetime | None, environ: Mapping[str, str], notice: Notice
) -> None:
    """Say when Slurm expects the job to start, what the site has changed, and why the job may wait for ever.

    The job is queued: no error is raised.
    """
    now = datetime.now(UTC)
    if start and start - now < LATEST_START and not spec.hold and not spec.dependency:
        notice(f"Slurm expects it to start {'at once' if start - now < _AT_ONCE else f'at {start:%Y-%m-%d %H:%M}'}")
    with suppress(ClusterError):
        for job in queries.show(job_id.number, environ)[:1]:
            for line in site_changes(spec, job):
                notice(line)
            if job.state == "PENDING" and not spec.hold and (why := warning(job.reason, job.job_id)):
                notice(f"job {job.job_id} waits ({job.reason}): {why}")


def site_changes(spec: JobSpec, job: JobInfo) -> Iterator[str]:
    """Yield a line for each important value that Slurm has accepted otherwise than it was asked for."""
    accepted = f"job {job.job_id} was accepted with"
    if spec.requeue and not job.requeue:
        yield (
            f"{accepted} Requeue=0: after a preemption or the time limit it does not start again; `--chain N` queues N "
            "jobs that continue in its place"
        )
    if spec.dependency and not job.dependency and spec.dependency.lower() != "singleton":
        known = f"Slurm does not know those of {spec.dependency}, or they have ended"
        yield f"job {job.job_id} waits for no other job: {known}"
    # before the job starts, Slurm shows all the partitions that were asked for
    if spec.partition and job.partition and job.partition not in (spec.partition, *spec.partition.split(",")):
        yield f"{accepted} the partition {job.partition} where {spec.partition} was asked for"
    if spec.time and job.limit_s not in (spec.time_s, -(-(spec.time_s or 0) // 60) * 60):
        limit = "UNLIMITED" if job.limit_s is None else slurm_time(job.limit_s)
        yield f"{accepted} the time limit {limit} where {spec.time} was asked for"
    if job.node_count and not spec.script and spec.allocated_nodes != job.node_count:
        yield f"{accepted} the number of nodes {job.node_count} where {spec.allocated_nodes} was asked for"
