"""Why a job failed: the cause, the rank, the host, and what to type next. Reads files and asks Slurm; changes nothing.

The failures that are known are data, in `catalogue`.
"""

from slurmddp.diagnose.values import NONE, UNKNOWN, Diagnosis, Line

__all__ = ["NONE", "UNKNOWN", "Diagnosis", "Line"]
