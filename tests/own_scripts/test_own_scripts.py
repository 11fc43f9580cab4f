"""Batch scripts as people have them, each submitted by plain sbatch and by slurmddp: both jobs are the same.

`compare` (its first lines say what is compared) does both on a real Slurm. Some scripts stand for all in each run;
`make soak` takes all.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OFTEN = ("01-srun-python", "03-bash-c-node-rank", "16-train-then-evaluate", "19-hetjob", "20-ssh-loop")
CASES = sorted(path.parent.name for path in HERE.glob("*/job.sbatch"))


@pytest.mark.slurm
@pytest.mark.parametrize(
    "case", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.soak) for name in CASES]
)
def test_the_job_is_that_of_sbatch(slurm_env, case):
    environ = slurm_env | {"PATH": f"{Path(sys.executable).parent}:{slurm_env['PATH']}", "OMP_NUM_THREADS": "1"}
    compare = [sys.executable, str(HERE / "compare"), "--verbose", "--timeout", "500", str(HERE / case)]
    done = subprocess.run(compare, env=environ, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
