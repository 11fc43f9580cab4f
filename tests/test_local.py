"""`run` describes what it starts before it starts it."""

import pytest

from slurmddp import local
from slurmddp.errors import UsageError
from slurmddp.spec import JobSpec


def plan(devices=None, environ=None, **values) -> local.LocalRun:
    return local.plan(JobSpec(**{"job_name": "x"} | values), devices=devices, environ=environ or {})


@pytest.mark.parametrize(
    ("values", "devices", "ranks"),
    [
        ({}, None, 1),
        ({"gpus_per_node": "a100:3"}, None, 3),
        ({"ntasks_per_node": 2, "gpus_per_node": "4"}, None, 2),
        ({}, "0,2", 2),
    ],
)
def test_ranks_are_those_of_a_node_or_of_the_devices(values, devices, ranks):
    assert f"--nproc-per-node={ranks}" in plan(devices, **values).command


def test_the_environment_is_told_once_and_not_inherited():
    planned = plan("0,2", {"RANK": "7", "SLURM_PROCID": "3", "HOME": "/h", "OMP_NUM_THREADS": "4"}, env=("A=b=c",))
    assert (
        planned.environment.items()
        >= {
            "CUDA_VISIBLE_DEVICES": "0,2",
            "DDPRUN_LAUNCHER": "torchrun",
            "DDPRUN_JOB": planned.job_id,
            "HOME": "/h",
            "OMP_NUM_THREADS": "4",
            "A": "b=c",
        }.items()
    )
    assert not {"RANK", "SLURM_PROCID"} & set(planned.environment)


@pytest.mark.parametrize("devices", ["0,0", "a", "0,", "-1", "0 1"])
def test_devices_that_are_no_numbers_are_refused(devices):
    with pytest.raises(UsageError, match="--devices"):
        plan(devices)


def test_the_command_reaches_torchrun_as_words():
    assert plan(command=("train.py", "a b", "--lr", "1")).command[-4:] == ["train.py", "a b", "--lr", "1"]
