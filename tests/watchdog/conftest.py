"""Starts jobs on the real Slurm, whose ranks stand still and are looked into."""

import os

import pytest
from command_line import job_output
from polling import ASK_SLURM_S, until
from standing import OWN, PROGRAM, Standing


@pytest.fixture(scope="module")
def start_standing(sandbox, tmp_path_factory):
    """Return a function that starts a job by a launcher, once, and waits until its ranks stand still."""
    root = tmp_path_factory.mktemp("standing")
    environ = {**os.environ, **sandbox.environment(), "OMP_NUM_THREADS": "1"}
    jobs = {}

    def start(launcher):
        if launcher not in jobs:
            words = ["own.sh"]
            (root / "own.sh").write_text(OWN)
            if launcher != "own":
                each = ["--ntasks-per-node=2", "--cpus-per-task=1", f"--launcher={launcher}"]
                words = ["--nodes=2", *each, str(PROGRAM)]
            job = Standing(f"at-{launcher}", "", root, environ)
            said, _ = job.type("submit", f"--name={job.name}", *words)
            jobs[launcher] = job = job._replace(job=said.strip())
            until((root / "jobs" / job.name / "fifo").exists, 200, lambda: job_output(root), pause_s=ASK_SLURM_S)
        return jobs[launcher]

    yield start
    for job in jobs.values():
        job.type("cancel", job.name)


@pytest.fixture
def standing(start_standing, request):
    return start_standing(request.param)
