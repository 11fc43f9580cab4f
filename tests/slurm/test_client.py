"""Several programs of Slurm run at the same time: outputs are in order, and the first error is raised."""

import os
import threading
import time

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm import client


def test_all_programs_run_at_the_same_time_and_their_outputs_keep_the_order(tmp_path):
    """The first waits for a file that the second makes."""
    os.mkfifo(tmp_path / "made")
    questions = [(["cat", f"{tmp_path}/made"], b""), (["tee", f"{tmp_path}/made"], b"x")]
    assert client.query_all(questions, os.environ, timeout_s=20) == ["x", "x"]


def test_the_error_of_the_first_program_that_failed_is_raised_and_the_others_are_killed():
    start = time.monotonic()
    with pytest.raises(ClusterError, match="first"):
        client.query_all(
            [(["sh", "-c", "echo first >&2; exit 1"], b""), (["sleep", "60"], b"")], os.environ, timeout_s=60
        )
    assert time.monotonic() - start < 30


def test_a_slow_program_is_reported_once_while_it_is_waited_for(monkeypatch, caplog):
    monkeypatch.setattr(client, "SLOW_S", 0.01)
    monkeypatch.setattr(client, "_first_report", threading.Lock())
    for _ in range(2):
        client.ask(["sleep", "0.3"], os.environ)
    assert caplog.messages == ["Slurm has not answered sleep yet; waiting for it"]


@pytest.mark.usefixtures("slurm_programs")
@pytest.mark.parametrize("command", [["squeue"], ["sbatch", "--test-only"], ["scontrol", "show", "job", "7"]])
def test_a_configuration_that_cannot_be_read_is_named(command, tmp_path):
    said = rf"^Slurm cannot read its configuration '{tmp_path}/none' \(SLURM_CONF\): No such file or directory; correct"
    with pytest.raises(ClusterError, match=said):
        client.ask(command, {**os.environ, "SLURM_CONF": f"{tmp_path}/none"})
