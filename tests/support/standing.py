"""Jobs on the real Slurm whose ranks stand still, to be looked into."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import SLURMDDP

PROGRAM = Path(__file__).parents[1] / "programs" / "stand.py"
OWN = f"""#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {Path(sys.executable).parent}/torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$((20000 + SLURM_JOB_ID % 9000))" {PROGRAM}
"""
LAUNCHERS = [
    "srun",
    "own",
    pytest.param("fork", marks=pytest.mark.soak),
    pytest.param("torchrun", marks=pytest.mark.soak),
]


class Standing(NamedTuple):
    """A job of four ranks on two nodes."""

    name: str
    job: str
    root: Path
    environ: dict[str, str]

    def type(self, *words, status=0, stdin="", **environ):
        """Run `slurmddp`; return what it printed, and on stderr."""
        command = [SLURMDDP, *words]
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environ | environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout, done.stderr
