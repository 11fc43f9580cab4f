"""Why a job failed: the cause, the first rank, its host, and what to type next. Reads files and asks Slurm.

The known failures are data in `rules`; a new one is a pattern in the file of its topic there.
"""

from slurmddp.diagnose.diagnosis import diagnose, diagnose_attempt
from slurmddp.diagnose.failures import compare_with_others, find_failures, format_failures
from slurmddp.diagnose.formatting import format_diagnosis
from slurmddp.diagnose.output_files import diagnose_output
from slurmddp.diagnose.rule_types import NO_FAILURE, NONE, UNKNOWN, Diagnosis, Line
from slurmddp.diagnose.rules import load_rules

__all__ = [
    "NONE",
    "NO_FAILURE",
    "UNKNOWN",
    "Diagnosis",
    "Line",
    "compare_with_others",
    "diagnose",
    "diagnose_attempt",
    "diagnose_output",
    "find_failures",
    "format_diagnosis",
    "format_failures",
    "load_rules",
]
