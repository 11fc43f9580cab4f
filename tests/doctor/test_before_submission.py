"""Variables that travel, and the notice."""

import pytest

from slurmddp.config.job_spec import JobSpec
from slurmddp.doctor.before_submission import check_stop_notice, check_variables


def spec(**changes) -> JobSpec:
    return JobSpec(**({"job_name": "exp", "command": ("train.py",)} | changes))


def told(environ, **changes) -> list[str]:
    return [f"{each.level}: {each.what}" for each in check_variables(spec(**changes), environ)]


def test_what_does_not_travel_is_named_without_values():
    (found,) = told({"SLURM_JOB_ID": "17", "SBATCH_MEM_PER_CPU": "1", "MASTER_ADDR": "n9", "HOME": "/h"})
    wanted = "MASTER_ADDR, SBATCH_MEM_PER_CPU, SLURM_JOB_ID"
    assert found == f"note: the job does not inherit 3 variables of another job or of sbatch: {wanted}"
    assert told({f"SLURM_{number}": "" for number in range(9)})[0].endswith("SLURM_5 and 3 more")


@pytest.mark.parametrize(
    ("environ", "changes", "words"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, {}, "warning: the job inherits NCCL_P2P_DISABLE=1"),
        ({"NCCL_P2P_DISABLE": "0"}, {}, None),
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, {}, "warning: the job inherits TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        ({"NCCL_P2P_DISABLE": "1"}, {"env": ("NCCL_P2P_DISABLE",)}, None),
        ({}, {"env": ("TOKEN",)}, "error: --env TOKEN: TOKEN is not set here"),
        ({}, {"env": ("TOKEN=1",)}, None),
        ({"NCCL_SOCKET_IFNAME": "eth9"}, {}, "note: the job inherits NCCL_SOCKET_IFNAME=eth9, which must be correct"),
        ({"NCCL_SOCKET_IFNAME": "eth9"}, {"interface": "ib0"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {}, "warning: a job without GPUs inherits CUDA_VISIBLE_DEVICES=0"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {"gpus_per_node": "1"}, None),
        ({"HOME": "/h", "OMP_NUM_THREADS": "1"}, {}, None),
    ],
)
def test_what_travels_and_matters_is_told(environ, changes, words):
    found = told(environ, **changes)
    assert found == [] if words is None else (len(found) == 1 and found[0].startswith(words))


def test_when_the_notice_comes_and_whether_the_job_comes_back():
    (found,) = check_stop_notice(spec(time="60"))
    assert found.level == "ok" and "120 s before the end of the time limit 60" in found.what
    (found,) = check_stop_notice(spec(requeue=False))
    assert found.level == "warning" and "--chain" in found.advice
