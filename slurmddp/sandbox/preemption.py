"""Preempts a job by one of higher priority, and waits until that has begun."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slurmddp.background import wait_until
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.slurm import client, commands, queries, sbatch_command
from slurmddp.slurm.job_info import JobInfo, is_job_id
from slurmddp.slurm.values import Record, parse_record

HIGH_PRIORITY: Final = "high"
"""The partition whose jobs preempt others."""
_DEADLINE_S: Final = 30
_POLL_S: Final = 0.05

_MAKE_LOW: Final = (
    "make a partition for it, as in: slurmddp sandbox up "
    "--partition low:nodes=0,Nodes=ALL,PriorityTier=1,PreemptMode=REQUEUE"
)


def preempt(job_id: str, environ: Mapping[str, str]) -> None:
    """Preempt a job by one that ends as soon as it has the nodes; return when Slurm has begun to preempt it.

    Raises UsageError for text that is not the id of one job, SlurmddpError when the job does not run, ClusterError when
    Slurm does not know it or no job can preempt it.
    """
    if not is_job_id(job_id):
        raise UsageError(f"{job_id!a} is not a job id; give one, as in 17 or, for one task of an array, 17_3")
    job = queries.show_one(job_id, environ)
    partitions = map(parse_record, client.query(commands.show("partitions"), environ).splitlines())
    check_preemptible(job, {record["PartitionName"]: record for record in partitions if record})
    if _has_begun(job):
        return
    command = sbatch_command.sbatch_command(output=Path("/dev/null"))
    preemptor, _ = sbatch_command.submit(command, preemptor_script(job), environ)
    try:
        _wait(job_id, preemptor.number, environ)
    except BaseException:
        client.order(commands.cancel(preemptor.number), environ)
        raise


def check_preemptible(job: JobInfo, partitions: Mapping[str, Record]) -> None:
    """Raise SlurmddpError when that job does not run, ClusterError when no job can preempt it."""
    if job.state != "RUNNING":
        raise SlurmddpError(f"job {job.job_id} is {job.state}; only a running job can be preempted")
    if HIGH_PRIORITY not in partitions:
        raise ClusterError(
            f"job {job.job_id} cannot be preempted: this sandbox has no partition '{HIGH_PRIORITY}'; make one, as in: "
            f"slurmddp sandbox up --partition {HIGH_PRIORITY}:nodes=0,Nodes=ALL,PriorityTier=100"
        )
    if partitions[job.partition]["PreemptMode"] == "OFF":
        can = [name for name, record in partitions.items() if record["PreemptMode"] != "OFF"]
        use = f"submit it to one of: {' '.join(can)}, as in: slurmddp submit -p {can[0]} ..." if can else _MAKE_LOW
        raise ClusterError(f"job {job.job_id} is in partition {job.partition}, where no job can preempt it; {use}")


def preemptor_script(job: JobInfo) -> bytes:
    """Return the script of a job that needs all nodes of that job, and ends as soon as it has them.

    It must stay in the queue until then: when it is cancelled earlier, Slurm lets the preempted job run on after its
    grace time (22.05).
    """
    shape = (f"--nodelist={job.nodes}", f"--nodes={job.node_count}", "--exclusive", "--time=1")
    place = (f"--partition={HIGH_PRIORITY}", f"--job-name=preempt-{job.job_id}", "--chdir=/")
    return "\n".join(["#!/bin/sh", *(f"#SBATCH {option}" for option in (*place, *shape)), "true\n"]).encode()


def _has_begun(job: JobInfo) -> bool:
    """Tell whether the job no longer runs, or Slurm has told it to end."""
    return job.state != "RUNNING" or job.preempted


def _wait(job_id: str, preemptor: str, environ: Mapping[str, str]) -> None:
    if not wait_until(lambda: _has_begun(queries.show_one(job_id, environ)), _DEADLINE_S, _POLL_S):
        reason = queries.show_one(preemptor, environ).reason
        raise ClusterError(
            f"job {job_id} was not preempted within {_DEADLINE_S} s: the job that wants its nodes waits for {reason}; "
            "does another job hold one of them?"
        )
