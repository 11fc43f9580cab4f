"""Where a call waits for its job, which has no number yet; should nobody hand it over, the job finds it there."""

from pathlib import Path
from typing import Final

VARIABLE: Final = "SUBMITIT_CALL"
"""Tells a job where its calls lie; sbatch takes it over from the environment."""


def call_file(handed: Path, index: int) -> Path:
    """Return the file of one call of an array; the only one has index 0."""
    return handed.with_name(f"{handed.name}.{index}.pkl")
