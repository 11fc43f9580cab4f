"""The status of jobs: from squeue, sacct, scontrol, and the runs' own files."""

from slurmddp.monitoring.status.job_status import JobStatus, Progress
from slurmddp.monitoring.status.query import last_submission, query_jobs, query_targets, read_facts, read_runs

__all__ = ["JobStatus", "Progress", "last_submission", "query_jobs", "query_targets", "read_facts", "read_runs"]
