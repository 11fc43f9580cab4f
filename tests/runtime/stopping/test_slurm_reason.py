"""What Slurm says of a job that is to stop; the records are those of Slurm 22.05.8, seen by a rank at its TERM."""

import time

import pytest

from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.stopping import slurm_reason

END = "2026-11-21T14:36:30"
SEEN = {
    "cancelled": f"JobState=COMPLETING Reason=None Restarts=0 ExitCode=0:15 EndTime={END} PreemptTime=None",
    "requeued": f"JobState=COMPLETING Reason=None Restarts=1 ExitCode=0:0 EndTime={END}",
    "preempted": f"JobState=RUNNING Reason=None Restarts=0 EndTime={END} PreemptTime=2026-11-21T14:36:20",
    "time limit": f"JobState=RUNNING Reason=None Restarts=0 EndTime={END} PreemptTime=None",
    "signal": "JobState=RUNNING Reason=None Restarts=0 EndTime=Unknown PreemptTime=None",
}


def rank(launcher: str = "srun") -> Rank:
    numbers = {"rank": 0, "local_rank": 0, "world_size": 1, "local_world_size": 1, "node_rank": 0}
    ports = {"master_addr": "n1", "master_port": 1, "store_port": 2}
    return Rank(**numbers, **ports, host="n1", launcher=launcher, job="17", attempt="0.1")


@pytest.mark.parametrize("reason", SEEN)
def test_the_reason_is_slurms(reason, tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    record = f"JobId=17 JobName=x UserId=me(7) {SEEN[reason]}"
    scontrol.write_text(f'#!/bin/sh\n[ "$*" = "--oneliner show job 17" ] && echo "{record}"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = slurm_reason.ask_slurm(rank(), "SIGUSR2" if reason == "time limit" else "SIGTERM")
    ends_at = time.mktime(time.strptime(END, "%Y-%m-%dT%H:%M:%S"))
    assert told == (reason, ends_at if reason in ("preempted", "time limit") else None)


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_without_slurm_the_reason_is_the_signal(launcher, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm_reason.ask_slurm(rank(launcher), "SIGTERM") == ("signal", None)


def test_the_clock_needs_no_slurm_to_mean_the_time_limit(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm_reason.ask_slurm(rank(), "clock") == ("time limit", None)
