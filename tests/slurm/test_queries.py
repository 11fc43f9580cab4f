"""Slurm is asked about jobs within a time, once more when an answer was lost, and its errors are told in its words."""

import pytest

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands, queries
from slurmddp.slurm.job_info import Listing


@pytest.fixture
def says(tmp_path):
    """Return a function that puts a stand-in for one of Slurm's programs, a script, in the place of the real one."""

    def put(program, script):
        path = tmp_path / program
        path.write_text(f"#!/bin/sh\necho x >>{tmp_path}/{program}.calls\n{script}\n")
        path.chmod(0o755)
        return {"PATH": f"{tmp_path}:/bin:/usr/bin"}

    return put


def test_a_program_that_does_not_end_is_left(says):
    heard = queries.queue(["17"], says("squeue", "exec sleep 60"), timeout_s=0.5)
    assert heard.jobs == () and "did not end" in heard.silence


def test_a_lost_answer_is_asked_for_once_more(says, tmp_path, monkeypatch):
    monkeypatch.setattr(queries, "PAUSE_S", 0)
    environ = says("squeue", "echo 'slurm_load_jobs error: Socket timed out on send/recv operation' >&2; exit 1")
    heard = queries.queue(["17"], environ, timeout_s=60)
    assert heard.silence == "Socket timed out on send/recv operation"
    assert (tmp_path / "squeue.calls").read_text() == "x\n" * queries.TRIES


def test_a_controller_that_is_not_there_is_asked_once(says, tmp_path):
    environ = says("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert queries.queue(["17"], environ, timeout_s=60).silence == "Unable to contact slurm controller"
    assert (tmp_path / "squeue.calls").read_text() == "x\n"


def test_a_job_that_nobody_knows_is_no_silence(says):
    environ = says("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queries.queue(["17"], environ, timeout_s=60) == Listing()
    environ = says("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queries.controller(["17"], environ, timeout_s=60) == Listing()
    environ = says("scontrol", "echo 'scontrol: error: slow' >&2; exit 1")
    assert queries.controller(["17"], environ, timeout_s=60).silence == "slow"


def test_without_slurm_there_is_silence():
    assert "squeue was not found" in queries.queue(["17"], {"PATH": "/nowhere"}, timeout_s=60).silence


def test_many_jobs_are_asked_for_by_their_user():
    ids = [str(number) for number in range(10000)]
    for command in (commands.list_jobs(ids), commands.list_accounted(ids)):
        assert sum(map(len, command)) < 1000 and any("--user=" in word for word in command)
    few = commands.list_jobs(["1", "2"]), commands.list_accounted(["1", "2"])
    assert all("--jobs=1,2" in command for command in few)


def test_a_controller_that_does_not_answer_or_refuses_is_told_in_its_words(says):
    def refusing(words):
        return says("scontrol", f"echo '{words}' >&2; exit 1")

    lost = "scontrol: error: Unable to contact slurm controller (connect failure)"
    with pytest.raises(ClusterError, match="no Slurm controller answers"):
        queries.show("17", refusing(lost))
    with pytest.raises(ClusterError, match="no Slurm controller answers"):
        client.order(commands.requeue("17"), refusing(lost))
    with pytest.raises(ClusterError, match="scontrol show job 17: slow"):
        queries.show("17", refusing("scontrol: error: slow"))
    with pytest.raises(ClusterError, match="scontrol --oneliner show nodes n7: Node n7 not found"):
        client.order(commands.show("nodes", "n7"), refusing("Node n7 not found"))
    assert queries.show("17", refusing("slurm_load_jobs error: Invalid job id specified")) == []
