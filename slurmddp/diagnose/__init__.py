"""Why a job failed: the cause, the rank, the host, and what to type next. Reads files and asks Slurm; changes nothing.

The failures that are known are data, in `catalogue` and `states`.
"""

from slurmddp.diagnose.diagnosis import diagnose, of_attempt
from slurmddp.diagnose.formatting import as_json, lines
from slurmddp.diagnose.model import NONE, UNKNOWN, Diagnosis, Line

__all__ = ["NONE", "UNKNOWN", "Diagnosis", "Line", "as_json", "diagnose", "lines", "of_attempt"]
