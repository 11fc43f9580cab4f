"""A person's own batch script comes back after a preemption and after kill -9, with the bits of a calm run.

Nothing of slurmddp is installed in the Python of the ranks.
"""

import re
import subprocess
import venv
from pathlib import Path

import pytest
import torch
from command_line import slurmddp
from framework_job import PROGRAMS, Job, kill_rank
from polling import until

from slurmddp.runs.layout import RunDir

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = """#!/bin/bash
#SBATCH -J own
#SBATCH -p low
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH -o out.txt
set -euo pipefail
export PATH={path}:$PATH
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT={port}
{launch} {program}
echo "the script goes on"
"""
LAUNCHES = {
    "srun": "srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS "
    'exec python "$@"\' sh',
    "torchrun": "srun python -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d "
    "--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT",
}
TRAINS = {
    "handler": f"{PROGRAMS / 'own_handler.py'} 8 own.pt 0.1",
    "steps": f"{PROGRAMS / 'slowed.py'} 0.1 {EXAMPLES / 'steps.py'} --epochs 3",
    "trainer": f"{PROGRAMS / 'hf_trainer.py'} 8 out 0.1 "
    """'save_strategy="steps"' save_steps=8 logging_steps=4""",
}
STARTED = {"handler": "epoch 1 done", "steps": "step 20 ", "trainer": "epoch 2 done"}
"""What each prints when it can be stopped."""
CASES = [(program, launch) for program in TRAINS for launch in LAUNCHES]
FINAL = re.compile(r"final (?:loss|weights) (\S+)")


@pytest.fixture(scope="module")
def ranks_bin(tmp_path_factory) -> Path:
    """Return the bin folder of an environment with torch and without slurmddp."""
    folder = tmp_path_factory.mktemp("ranks") / "env"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    found = subprocess.run(
        [folder / "bin/python", "-c", "import slurmddp.errors"], capture_output=True, cwd=folder, check=False
    )
    assert b"ModuleNotFoundError" in found.stderr
    return folder / "bin"


@pytest.fixture
def submit(slurm_env, long_grace, ranks_bin, tmp_path):
    del long_grace
    ports = iter(range(29_817, 30_000, 7))

    def begin(program: str, launch: str, name: str) -> Job:
        folder = tmp_path / name
        folder.mkdir()
        text = SCRIPT.format(path=ranks_bin, launch=LAUNCHES[launch], program=TRAINS[program], port=next(ports))
        (folder / "train.sbatch").write_text(text)
        job_id = slurmddp("submit", "train.sbatch", cwd=folder, environ=slurm_env).strip()
        return Job(job_id, RunDir(folder / "jobs" / "own"))

    return begin


def said(job: Job) -> str:
    path = job.run.path.parents[1] / "out.txt"
    return path.read_text() if path.exists() else ""


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("program", "launch"),
    [case if case == ("handler", "srun") else pytest.param(*case, marks=pytest.mark.soak) for case in CASES],
)
def test_it_ends_with_the_bits_of_a_calm_run(program, launch, submit, wait_for_job, sandbox):
    calm = submit(program, launch, "calm")
    assert wait_for_job(calm.job_id)["JobState"] == "COMPLETED", said(calm)
    job = submit(program, launch, "job")
    until(lambda: STARTED[program] in said(job), otherwise=lambda: said(job))
    job.preempt(sandbox)
    until(lambda: len(job.events("attempt_start")) == 2, otherwise=lambda: said(job))
    newest = job.run.attempt(job.job_id, "1.0") / "0.begin"
    until(newest.exists, otherwise=lambda: said(job))
    kill_rank(job)
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", said(job)
    assert [event["status"] for event in job.events("attempt_end")] == [75, 76, 0], said(job)
    assert set(FINAL.findall(said(job))) == set(FINAL.findall(said(calm))) != set()
    assert said(job).count("the script goes on\n") == 1


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("fault", "state", "starts"), [("kill -9 $$", "COMPLETED", 2), ("exit 3", "FAILED", 1)], ids=["killed", "failed"]
)
def test_a_training_of_a_loop_in_the_background_is_not_lost(fault, state, starts, slurm_env, wait_for_job, tmp_path):
    (tmp_path / "train.sh").write_text(f"[ $1$SLURMDDP_ATTEMPT != 20.0 ] || {fault}\necho finished $1\n")
    loop = "for n in 1 2; do\nsrun -N 1 -n 1 --exact sh train.sh $n &\ndone\nwait\n"
    (tmp_path / "train.sbatch").write_text(f"#!/bin/bash\n#SBATCH -J own\n#SBATCH -N 2\n#SBATCH -o out.txt\n{loop}")
    job = Job(
        slurmddp("submit", "train.sbatch", cwd=tmp_path, environ=slurm_env).strip(), RunDir(tmp_path / "jobs/own")
    )
    assert wait_for_job(job.job_id)["JobState"] == state, said(job)
    assert len(job.events("attempt_start")) == starts and ("finished 2" in said(job)) == (state == "COMPLETED")
    assert [event["status"] == 0 for event in job.events("job_end")] == [state == "COMPLETED"]
