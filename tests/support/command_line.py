"""Runs `slurmddp` as a user does."""

import subprocess
import sys
from pathlib import Path

SLURMDDP = Path(sys.executable).parent / "slurmddp"


def slurmddp(*command: str, cwd: Path, environ: dict[str, str], status: int = 0) -> str:
    done = subprocess.run(
        [SLURMDDP, *command],
        cwd=cwd,
        env={**environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout
