"""Why a job failed: the cause, the first rank, its host, and what to type next. Reads files and asks Slurm.

The known failures are data in `catalogue`; a new one is a rule in the module of its topic there.
"""

from slurmddp.diagnose.diagnosis import diagnose, diagnose_attempt
from slurmddp.diagnose.formatting import format_diagnosis
from slurmddp.diagnose.output_files import diagnose_output
from slurmddp.diagnose.rule_types import NONE, UNKNOWN, Diagnosis, Line

__all__ = [
    "NONE",
    "UNKNOWN",
    "Diagnosis",
    "Line",
    "diagnose",
    "diagnose_attempt",
    "diagnose_output",
    "format_diagnosis",
]
