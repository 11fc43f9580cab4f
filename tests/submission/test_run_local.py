"""`run` describes what it starts before it starts it."""

import os
import sys
from io import FileIO
from pathlib import Path

import pytest

from slurmddp.attach import BOOTSTRAP
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import HERE, Claim
from slurmddp.submission import run_local


def plan(devices=None, environ=None, **values) -> run_local.LocalRun:
    return run_local.plan(JobSpec(**{"job_name": "x"} | values), devices=devices, environ=environ or {})


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
            "SLURMDDP_STARTED_BY": "torchrun",
            "SLURMDDP_JOB_ID": planned.job_id,
            "SLURMDDP_CHECKPOINT_DIR": str(planned.run.checkpoints),
            "HOME": "/h",
            "OMP_NUM_THREADS": "4",
            "A": "b=c",
        }.items()
    )
    assert not {"RANK", "SLURM_PROCID"} & set(planned.environment)


def test_a_virtual_environment_need_not_have_slurmddp(tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    assert plan(venv=str(tmp_path / "venv")).command[:4] == [sys.executable, "-P", "-u", "-m"]
    python.parent.mkdir(parents=True)
    python.touch()
    for values in ({"venv": str(tmp_path / "venv")}, {"python": str(python)}):
        words = plan(**values).command
        assert words[:3] == [str(python), "-u", str(BOOTSTRAP)]
        assert words[words.index("--no-python") + 1 :][:3] == [str(python), "-u", str(BOOTSTRAP)]


@pytest.mark.parametrize("devices", ["0,0", "a", "0,", "-1", "0 1"])
def test_devices_that_are_no_numbers_are_refused(devices):
    with pytest.raises(UsageError, match="--devices"):
        plan(devices)


def test_devices_are_as_many_as_the_gpus_of_a_node():
    assert "--nproc-per-node=1" in plan("0,1", gpus_per_node="2", ntasks_per_node=1).command
    with pytest.raises(UsageError, match="--devices names 2 GPUs, but --gpus-per-node is 4; give --gpus-per-node 2"):
        plan("0,1", gpus_per_node="a100:4")


def test_the_command_reaches_torchrun_as_words():
    assert plan(command=("train.py", "a b", "--lr", "1")).command[-4:] == ["train.py", "a b", "--lr", "1"]


def test_torchrun_leaves_dollars_alone():
    assert plan(command=("train.py", "$$", "${local_rank}")).command[-2:] == ["$$$$", "$${local_rank}"]


def test_the_ranks_may_meet_by_a_file_of_this_run():
    planned = plan(rendezvous="file")
    meeting = planned.run.rendezvous_file(planned.job_id, run_local.ATTEMPT)
    assert planned.environment["SLURMDDP_RENDEZVOUS_FILE"] == f"file://{meeting}"
    assert "SLURMDDP_RENDEZVOUS_FILE" not in plan().environment


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (["76 rank 0 on a: lost rank 1", "77 rank 1 on a: ValueError: boom", "77 rank 2 on a: late"], 1),
        (["0 done", "76 rank 1 on a: lost rank 0", "76 rank 2 on a: lost rank 0"], None),
        (["75 rank 0 on a: stop signal received at step 3", "76 rank 1 on a: lost rank 0"], 0),
        ([], None),
    ],
)
def test_the_cause_is_the_oldest_record_of_a_failure_that_is_no_lost_peer(tmp_path: Path, records, told):
    ran = run_local.LocalRun(RunDir(tmp_path), "7", [], {})
    ran.console_log.parent.mkdir(parents=True)
    for rank, record in enumerate(records):
        path = ran.run.rank_record("7", run_local.ATTEMPT, rank)
        path.write_text(f"{record}\n")
        os.utime(path, (rank, rank))
    reason = records[told].partition(" ")[2] if told is not None else ""
    assert run_local.failure_reason(ran) == (
        f"{reason}; see {ran.run.rank_log('7', run_local.ATTEMPT, told)}" if reason else None
    )


def test_a_run_has_one_owner(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create()
    mine = run_local.LocalRun(run, f"local-x-{os.getpid()}", [], {})
    here = str(Claim(HERE, mine.job_id, run_local.ATTEMPT))
    with (
        run_local.hold_ownership(mine),
        pytest.raises(UsageError, match="belongs to 'local:"),
        run_local.hold_ownership(mine),
    ):
        pass
    assert not run.owner.exists()
    for line in (here.replace(str(os.getpid()), "4194305"), ""):
        run.owner.write_text(line)
        with run_local.hold_ownership(mine):
            assert run.owner.read_text() == f"{here}\n"
    run.owner.write_text("cluster 17 0.0")
    with pytest.raises(UsageError, match="belongs to 'cluster 17 0.0'"), run_local.hold_ownership(mine):
        pass


def test_a_run_that_is_refused_leaves_no_trace_in_the_one_that_goes_on(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create()
    first = run_local.LocalRun(run, f"local-1-{os.getpid()}", [], {})
    second = run_local.LocalRun(run, f"local-2-{os.getpid()}", [], {})
    with run_local.hold_ownership(first), pytest.raises(UsageError, match="belongs to 'local:"):
        run_local.perform(second, show=lambda _: None)
    assert list(run.logs.iterdir()) == []


def test_what_the_ranks_start_finds_their_virtual_environment(tmp_path):
    (tmp_path / "pyvenv.cfg").touch()
    environment = plan(python=f"{tmp_path}/bin/python", environ={"PATH": "/x"}).environment
    assert (environment["VIRTUAL_ENV"], environment["PATH"]) == (str(tmp_path), f"{tmp_path}/bin:/x")
    assert plan(python="python3", environ={"PATH": "/x"}).environment["PATH"] == "/x"


def test_a_log_that_cannot_be_written_is_a_warning(caplog):
    with FileIO("/dev/full", "ab") as log:
        run_local._keep(log, [b"a line\n"])
    said = "/dev/full cannot be written: No space left on device; the output is shown here alone"
    assert caplog.messages == [said]
