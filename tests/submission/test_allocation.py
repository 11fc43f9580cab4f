"""`slurmddp run` in a shell of salloc: the ranks start on all nodes of the allocation."""

import os
import re
import signal
import subprocess
import sys

import pytest
from command_line import SLURMDDP, job_output
from polling import ASK_SLURM_S, until

from slurmddp.config.job_spec import JobSpec
from slurmddp.submission.allocation import fit, is_inside

SHELL = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2]"}
TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print("sum", int(total), "on", os.environ["SLURMD_NODENAME"], "epoch", os.environ.get("EPOCH"), flush=True)
if "wait" in sys.argv:
    time.sleep(300)
assert "fail" not in sys.argv, "as asked"
"""


@pytest.mark.parametrize(
    ("environ", "inside"),
    [
        (SHELL, True),
        (SHELL | {"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"}, True),
        (SHELL | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}, False),
        (SHELL | {"ENVIRONMENT": "BATCH", "SLURM_PROCID": "0"}, False),
        ({"SLURM_JOB_ID": "17"}, False),
        ({}, False),
    ],
)
def test_only_a_shell_of_an_allocation_starts_steps(environ, inside):
    assert is_inside(environ) == inside


@pytest.mark.parametrize(
    ("asked", "made_for", "ranks"),
    [
        ({}, {}, 1),
        ({}, {"SLURM_NTASKS_PER_NODE": "3"}, 3),
        ({}, {"SLURM_NTASKS": "4"}, 2),
        ({}, {"SLURM_NTASKS": "2", "SLURM_GPUS_PER_NODE": "a100:8"}, 8),
        ({"ntasks_per_node": 2}, {"SLURM_NTASKS_PER_NODE": "3"}, 2),
        ({"gpus_per_node": "4"}, {"SLURM_GPUS_PER_NODE": "8"}, 4),
    ],
)
def test_the_ranks_are_those_that_the_allocation_is_made_for(asked, made_for, ranks):
    fitted = fit(JobSpec(job_name="x", nodes=5, **asked), SHELL | made_for)
    assert (fitted.nodes, fitted.tasks_per_node) == (2, ranks)


@pytest.fixture
def allocation(slurm_env, slurm, wait_for_job):
    """An allocation of both nodes, which ends with the test: the environment of its shell."""
    words = ["salloc", "--no-shell", "-N2", "--ntasks-per-node=2", "-c1"]
    said = subprocess.run(words, env=slurm_env, capture_output=True, text=True, timeout=300, check=True).stderr
    job_id = re.findall(r"Granted job allocation (\d+)", said)[0]
    yield slurm_env | {"SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS_PER_NODE": "2"}
    slurm("scancel", job_id)
    wait_for_job(job_id)


def run(environ, folder, *words, before=()):
    command = [*before, SLURMDDP, "run", *words]
    environ = {**environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)


def test_the_ranks_of_a_shell_of_salloc_meet_on_its_nodes(slurm_env, cli, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.toml").write_text('command = ["train.py"]\nname = "named"\nsetup = ["export EPOCH=7"]\n')
    done = run(slurm_env, tmp_path, "job.toml", before=["salloc", "-N2", "--ntasks-per-node=2", "-c1"])
    assert done.returncode == 0, done.stdout + done.stderr + job_output(tmp_path)
    assert "sum 10 on n1 epoch 7\n" in done.stdout and "on n2" not in done.stdout
    logs = cli("logs", "named", "--all").stdout
    assert logs.count("sum 10 on n1") == logs.count("sum 10 on n2") == 2
    assert "COMPLETED" in cli("status", "named").stdout


def test_each_run_in_an_allocation_is_one_of_its_own_and_a_failure_is_told(allocation, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    for number, launcher in enumerate(("fork", "torchrun"), 1):
        (tmp_path / "job.toml").write_text(f'command = ["train.py"]\nname = "train"\nlauncher = "{launcher}"\n')
        done = run(allocation, tmp_path, "job.toml")
        assert (done.returncode, done.stdout.count("sum 10")) == (0, 1), done.stdout + done.stderr
        assert len(list(tmp_path.glob("jobs/train/logs/local-*/0.0/3.out"))) == number
    done = run(allocation, tmp_path, "--ntasks-per-node=1", "--name=train", "train.py", "fail")
    assert done.returncode == 1
    assert re.search(r"rank \d on n[12]: AssertionError: as asked", done.stderr)


def test_ctrl_c_ends_the_ranks_and_leaves_the_allocation(allocation, slurm, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)

    def steps():
        said = slurm("squeue", "--steps", "--noheader", f"--jobs={allocation['SLURM_JOB_ID']}", "--format=%j")
        return [name for name in said.split() if name != "extern"]

    words = [sys.executable, "-m", "slurmddp", "run", "train.py", "wait"]
    with subprocess.Popen(
        words, env=allocation, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        until(lambda: "sum 10" in running.stdout.readline())
        os.killpg(running.pid, signal.SIGINT)
    assert running.returncode == 130
    until(lambda: not steps(), otherwise=steps, pause_s=ASK_SLURM_S)
    assert "JobState=RUNNING" in slurm("scontrol", "show", "job", allocation["SLURM_JOB_ID"])
    assert not (tmp_path / "jobs/train/owner").exists(), job_output(tmp_path)
    (record,) = tmp_path.glob("jobs/train/logs/*/0.0/0.end")
    assert record.read_text().startswith("75 "), "the ranks hear it as a stop signal"
