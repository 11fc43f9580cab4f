"""What became of jobs: from squeue, the accounting, the controller's records, and the runs' own files."""

from slurmddp.monitoring.status.job_status import JobStatus, Progress
from slurmddp.monitoring.status.query import current, look
from slurmddp.slurm.job_info import number

__all__ = ["JobStatus", "Progress", "current", "look", "number"]
