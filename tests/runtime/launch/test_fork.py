"""The parts of the fork launcher; tests/worker/test_launch.py runs the whole."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.errors import RankError
from slurmddp.runtime.launch import fork


def test_the_words_are_ranks_and_command():
    assert fork.parse(["--nproc-per-node=8", "--", "train.py", "--", "x"]) == (8, ["train.py", "--", "x"])
    assert fork.parse(["--nproc-per-node=1", "--"]) == (1, [])


@pytest.mark.parametrize(
    "words", [[], ["--nproc-per-node=0", "--"], ["--nproc-per-node=x", "--"], ["--nproc-per-node=2", "train.py"]]
)
def test_other_words_are_refused(words):
    with pytest.raises(RankError, match="allowed is --nproc-per-node=N -- COMMAND"):
        fork.parse(words)


@settings(deadline=None)
@given(cpus=st.lists(st.integers(0, 255), unique=True, min_size=1).map(sorted), count=st.integers(1, 16))
def test_ranks_get_equal_disjoint_runs_of_cpus(cpus, count):
    parts = fork.split_cpus(cpus, count)
    assert len(parts) == count
    if len(cpus) < count:
        assert parts == [cpus] * count
    else:
        assert {len(part) for part in parts} == {len(cpus) // count}
        assert [cpu for part in parts for cpu in part] == cpus[: count * (len(cpus) // count)]


def test_threads_are_counted(monkeypatch):
    monkeypatch.setattr(fork.Path, "iterdir", lambda _: iter("ab"))
    with pytest.raises(RankError, match=r"2 threads run after the imports .* --launcher srun"):
        fork._check_threads()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "Error: not started by srun"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2"}, "Error: 2 tasks on n1; fork needs srun --ntasks-per-node=1"),
    ],
)
def test_it_starts_only_as_the_one_task_of_a_node(environment, message):
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
    step |= {"SLURM_NODEID": "0", "SLURMD_NODENAME": "n1", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}
    command = [sys.executable, "-m", "slurmddp.runtime.launch.fork", "--nproc-per-node=2", "--"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    done = subprocess.run(
        command, env=clean | (step | environment if environment else {}), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr[: len(message)]) == (77, message)
