"""Preempts a job by one of higher priority: which jobs can be preempted, and when preemption has begun. Text only."""

import re
from collections.abc import Mapping
from typing import Final

from slurmddp.errors import ClusterError, SlurmddpError, UsageError

HIGH_PRIORITY: Final = "high"
"""The partition whose jobs preempt others."""

_MAKE_LOW: Final = (
    "make a partition for it, as in: slurmddp sandbox up "
    "--partition low:nodes=0,Nodes=ALL,PriorityTier=1,PreemptMode=REQUEUE"
)

Record = Mapping[str, str]
"""One line of `scontrol --oneliner show`, by key."""


def check_id(job_id: str) -> None:
    """Raise UsageError for text that is not the id of one job."""
    if not re.fullmatch(r"[0-9]+(_[0-9]+)?", job_id):
        raise UsageError(f"{job_id!a} is not a job id; give one, as in 17 or, for one task of an array, 17_3")


def check_preemptible(job_id: str, job: Record, partitions: Mapping[str, Record]) -> None:
    """Raise SlurmddpError when that job does not run, ClusterError when no job can preempt it."""
    if job["JobState"] != "RUNNING":
        raise SlurmddpError(f"job {job_id} is {job['JobState']}; only a running job can be preempted")
    if HIGH_PRIORITY not in partitions:
        raise ClusterError(
            f"job {job_id} cannot be preempted: this sandbox has no partition '{HIGH_PRIORITY}'; make one, as in: "
            f"slurmddp sandbox up --partition {HIGH_PRIORITY}:nodes=0,Nodes=ALL,PriorityTier=100"
        )
    if partitions[job["Partition"]]["PreemptMode"] == "OFF":
        can = [name for name, record in partitions.items() if record["PreemptMode"] != "OFF"]
        use = f"submit it to one of: {' '.join(can)}, as in: slurmddp submit -p {can[0]} ..." if can else _MAKE_LOW
        raise ClusterError(f"job {job_id} is in partition {job['Partition']}, where no job can preempt it; {use}")


def preemptor_options(job_id: str, job: Record) -> list[str]:
    """Return sbatch's options for a job that needs all nodes of that job, and ends as soon as it has them.

    It must stay in the queue until then: when it is cancelled earlier, Slurm lets the preempted job run on after its
    grace time (22.05).
    """
    shape = (f"--nodelist={job['NodeList']}", f"--nodes={job['NumNodes']}", "--exclusive", "--time=1")
    place = (f"--partition={HIGH_PRIORITY}", f"--job-name=preempt-{job_id}", "--chdir=/", "--output=/dev/null")
    return ["--parsable", *place, *shape, "--wrap=true"]


def has_begun(job: Record) -> bool:
    """Tell whether the job no longer runs, or Slurm has told it to end."""
    return job["JobState"] != "RUNNING" or job.get("PreemptTime", "None") != "None"
