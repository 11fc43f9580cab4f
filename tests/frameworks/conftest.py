"""Programs that run in the calm, and as jobs on the sandbox."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from command_line import slurmddp
from framework_job import Job, words

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


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> Callable[[str], str]:
    """Return a function that runs a program with two ranks on this machine, once, and returns all that was said."""

    @cache
    def run(program: str) -> str:
        folder = tmp_path_factory.mktemp(program)
        command = words(program, folder, 0)
        slurmddp("run", "--ntasks-per-node=2", "--name=calm", *command, cwd=folder, environ=dict(os.environ))
        logs = folder.glob("jobs/calm/logs/*/0.0/*.out")
        return "".join(path.read_text(errors="replace") for path in sorted(logs))

    return run
