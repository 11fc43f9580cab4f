"""Several programs of Slurm run at the same time: outputs are in order, and the first error is raised."""

import os
import threading

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm import client


def test_all_programs_run_at_the_same_time_and_their_outputs_keep_the_order(monkeypatch):
    together = threading.Barrier(3, timeout=10)

    def query(command, environ, *, timeout_s):
        together.wait()
        return f"{command[0]} {environ['A']} {timeout_s}"

    monkeypatch.setattr(client, "query", query)
    assert client.query_all([["a"], ["b"], ["c"]], {"A": "x"}, timeout_s=7) == ["a x 7", "b x 7", "c x 7"]


@pytest.mark.parametrize("error", [ClusterError, ValueError])
def test_the_error_of_the_first_program_is_raised_when_all_have_ended(monkeypatch, error):
    second, ended = threading.Event(), []

    def query(command, _environ, **_options):
        if command == ["first"]:
            assert second.wait(10)
        else:
            ended.append(command)
            second.set()
        raise error(command[0])

    monkeypatch.setattr(client, "query", query)
    with pytest.raises(error, match="first"):
        client.query_all([["first"], ["second"]], {}, timeout_s=7)
    assert ended == [["second"]]


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
