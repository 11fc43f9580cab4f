"""What can go wrong between sbatch and the record of its answer."""

import os
from pathlib import Path

import pytest

from slurmddp import config, submit
from slurmddp.slurm import LostAnswerError


@pytest.fixture
def deaf(tmp_path, monkeypatch, slurm_env):
    """The sandbox, but every answer of sbatch is lost before the job is accepted."""
    shim = tmp_path / "bin" / "sbatch"
    shim.parent.mkdir()
    shim.write_text("#!/bin/bash\ncat >/dev/null; echo x >>tries; echo 'sbatch: error: Socket timed out' >&2; exit 1\n")
    shim.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submit, "LOOKS", (0.0,))
    return slurm_env | {"PATH": f"{shim.parent}:{slurm_env['PATH']}"}


def test_answers_that_stay_lost_end_in_a_line_that_says_where_to_look(deaf):
    resolved = config.resolve(options={"job-name": f"lost-{os.getpid()}"}, words=(), job_file=None, environ={})
    with pytest.raises(LostAnswerError, match=r"lost 3 times .*squeue --name=lost-"):
        submit.submit(resolved, change=False, environ=deaf)
    assert Path("tries").read_text() == "x\n" * submit.ATTEMPTS
    assert Path("jobs", resolved.spec.job_name, "logs").is_dir(), "an accepted job would need it"
