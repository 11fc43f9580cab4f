"""On a real Slurm, trainings whose phases without a step last three time-outs: none of them is taken for a hang.

By srun, by fork, and by torchrun in a script of one's own. CI plays one phase, the calm training of test_hangs.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
PROGRAM = Path(__file__).parents[1] / "programs" / "healthy.py"
TIMEOUT_S = 6
OWN = f"""#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {Path(sys.executable).parent}/torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$((20000 + SLURM_JOB_ID % 9000))" {PROGRAM} {3 * TIMEOUT_S}
"""
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("program", ["fork", "srun", "own"])
def test_no_phase_is_taken_for_a_hang(slurm_env, tmp_path, wait_for_job, program):
    words = ["--ntasks-per-node=2", "--cpus-per-task=2", f"--launcher={program}", str(PROGRAM), str(3 * TIMEOUT_S)]
    if program == "own":
        (tmp_path / "own.sh").write_text(OWN)
        words = [str(tmp_path / "own.sh")]
    words = [SLURMDDP, "submit", "--nodes=2", "--name=healthy", f"--hang-timeout={TIMEOUT_S}", *words]
    environ = slurm_env | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    run = RunDir(tmp_path / "jobs" / "healthy")
    assert wait_for_job(job, timeout_s=1500)["JobState"] == "COMPLETED", run.batch_log(job).read_text()
    events = [event for event in read_records(run.events) if event["event"] in ("hang", "attempt_start")]
    assert [event["event"] for event in events] == ["attempt_start"], events
