"""Programs as jobs on the sandbox."""

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import slurmddp
from framework_job import Job

from slurmddp.runs.layout import RunDir


@pytest.fixture
def submit(slurm_env, long_grace, tmp_path) -> Callable[..., Job]:
    del long_grace

    def begin(
        name: str,
        launcher: str,
        *program: str,
        nodes: int = 2,
        ranks: int = 2,
        partition: str = "low",
        folder: Path = tmp_path,
    ) -> Job:
        shape = [f"--nodes={nodes}", f"--ntasks-per-node={ranks // nodes}", f"--partition={partition}"]
        shape += [f"--launcher={launcher}", f"--name={name}"]
        job_id = slurmddp("submit", *shape, *program, cwd=folder, environ=slurm_env).strip()
        return Job(job_id, RunDir(folder / "jobs" / name))

    return begin
