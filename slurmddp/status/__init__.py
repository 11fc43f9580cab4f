"""What became of jobs: from squeue, the accounting, the controller's records, and the runs' own files."""

from slurmddp.slurm.job_info import number
from slurmddp.status.look import current, look
from slurmddp.status.values import JobStatus, Progress

__all__ = ["JobStatus", "Progress", "current", "look", "number"]
