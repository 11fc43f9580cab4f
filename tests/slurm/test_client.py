"""Slurm's programs are run within a time, and what goes wrong is told."""

import os

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm import client
from slurmddp.slurm.client import LostAnswerError


def test_a_step_has_the_variables_of_its_job_and_a_query_has_not():
    command, environ = ["sh", "-c", "cat; echo $SLURM_JOB_ID"], {**os.environ, "SLURM_JOB_ID": "17"}
    assert client.run_step(command, environ, timeout_s=20).stdout == "17\n"
    assert client.ask(command, environ, stdin=b"asked").stdout == "asked\n"
    assert client.try_query(["no-such-program"], environ) == ""
    with pytest.raises(LostAnswerError, match="^sleep did not end within 0 s$"):
        client.run_step(["sleep", "60"], environ, timeout_s=0.1)
    with pytest.raises(LostAnswerError, match=r"^sh did not end within 1 s \(no controller\)$"):
        client.run_step(["sh", "-c", "echo no controller >&2; exec sleep 60"], environ, timeout_s=1)


@pytest.mark.usefixtures("slurm_programs")
@pytest.mark.parametrize("command", [["squeue"], ["sbatch", "--test-only"], ["scontrol", "show", "job", "7"]])
def test_a_configuration_that_cannot_be_read_is_named(command, tmp_path):
    said = rf"^Slurm cannot read its configuration '{tmp_path}/none' \(SLURM_CONF\): No such file or directory; correct"
    with pytest.raises(ClusterError, match=said):
        client.ask(command, {**os.environ, "SLURM_CONF": f"{tmp_path}/none"})
