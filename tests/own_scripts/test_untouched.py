"""A rank's own processes, and its weights, are the same below `sbatch` and below `slurmddp submit`."""

import json
import re
import sys
from pathlib import Path

import pytest
from command_line import slurmddp

PROGRAM = Path(__file__).parents[1] / "programs" / "many_processes.py"
SCRIPT = f"""#!/bin/bash
#SBATCH -N 1 --ntasks=2 -o out.txt
export MASTER_ADDR=$(hostname) MASTER_PORT=29711 OMP_NUM_THREADS=1 WANDB_MODE=offline
{{launch}} {PROGRAM}
"""
LAUNCHES = {
    "srun": f"srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=2 exec {sys.executable} \"$@\"' sh",
    "torchrun": f"srun -n 1 {sys.executable} -m torch.distributed.run --nproc-per-node 2 --master-port 29711",
}


@pytest.mark.parametrize("launch", ["srun", pytest.param("torchrun", marks=pytest.mark.soak)])
def test_processes_of_a_rank_and_the_weights_are_those_of_sbatch(slurm_env, slurm, wait_for_job, tmp_path, launch):
    found = {}
    for how in ("sbatch", "slurmddp"):
        folder = tmp_path / how
        folder.mkdir()
        (folder / "train.sbatch").write_text(SCRIPT.format(launch=LAUNCHES[launch]))
        if how == "sbatch":
            job = slurm("sbatch", "--parsable", f"--chdir={folder}", str(folder / "train.sbatch")).strip()
        else:
            job = slurmddp("submit", "train.sbatch", cwd=folder, environ=slurm_env).strip()
        wait_for_job(job)
        output = (folder / "out.txt").read_text()
        lines = re.findall(r"^found (.*)$", output, re.MULTILINE)
        assert len(lines) == 1, output
        found[how] = json.loads(lines[0])
    assert found["slurmddp"] == found["sbatch"]
    seen = found["slurmddp"]
    assert seen["loader"] == [False] and seen["child"] == [False, True] and seen["python"].startswith("False ")
