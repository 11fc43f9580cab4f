"""A job that is more urgent than another: what may be preempted, by what, and when it has begun. Text only."""

import re
from collections.abc import Mapping
from typing import Final

from slurmddp.errors import ClusterError, UsageError

URGENT: Final = "high"
"""The partition whose jobs preempt."""

Record = Mapping[str, str]
"""One line of `scontrol --oneliner show`, by key."""


def check_id(job_id: str) -> None:
    """Raise UsageError unless it names one job."""
    if not re.fullmatch(r"[0-9]+(_[0-9]+)?", job_id):
        raise UsageError(f"{job_id!a} is no job; give its id, as in 17 or, for one task of an array, 17_3")


def check(job_id: str, job: Record, partitions: Mapping[str, Record]) -> None:
    """Raise ClusterError when nothing can preempt that job now."""
    if job["JobState"] != "RUNNING":
        raise ClusterError(f"job {job_id} is {job['JobState']}; only a running job can be preempted")
    if URGENT not in partitions:
        raise ClusterError(
            f"job {job_id} cannot be preempted: this sandbox has no partition '{URGENT}'; make one, as in: slurmddp "
            f"sandbox up --partition {URGENT}:nodes=0,Nodes=ALL,PriorityTier=100"
        )
    if partitions[job["Partition"]]["PreemptMode"] == "OFF":
        can = " ".join(name for name, record in partitions.items() if record["PreemptMode"] != "OFF")
        raise ClusterError(
            f"job {job_id} is in partition {job['Partition']}, where nothing preempts it; submit it to one of: {can}"
        )


def urgent_job(job_id: str, job: Record) -> list[str]:
    """Return sbatch's words for a job that needs all the nodes that the job has, and ends as soon as it has them.

    It has to stay in the queue until then: a victim whose preemptor was cancelled is left running when its grace
    time is over (22.05).
    """
    shape = (f"--nodelist={job['NodeList']}", f"--nodes={job['NumNodes']}", "--exclusive", "--time=1")
    place = (f"--partition={URGENT}", f"--job-name=preempt-{job_id}", "--chdir=/", "--output=/dev/null")
    return ["--parsable", *place, *shape, "--wrap=true"]


def has_begun(job: Record) -> bool:
    """Whether the job runs no longer, or has been told that it must end."""
    return job["JobState"] != "RUNNING" or job.get("PreemptTime", "None") != "None"
