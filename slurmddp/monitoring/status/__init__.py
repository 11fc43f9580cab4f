"""The status of jobs: from squeue, sacct, scontrol, and the runs' own files."""

from slurmddp.monitoring.status.job_status import JobStatus, Progress
from slurmddp.monitoring.status.query import last_submission, query_jobs, query_targets

__all__ = ["JobStatus", "Progress", "last_submission", "query_jobs", "query_targets"]
