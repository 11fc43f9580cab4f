"""Faults on demand: a job that is preempted, a node that is cut off and healed."""

import os
import subprocess
import sys

import pytest
from polling import until

from slurmddp import sandbox as room
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.sandbox import preemption
from slurmddp.slurm.job_info import JobInfo

RUNNING = JobInfo(job_id="17", state="RUNNING", source="scontrol", partition="p")

BEATS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("TERM", flush=True) if "stay" in sys.argv else sys.exit())
while True:
    print("beat", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def beating(slurm, wait_for_job, tmp_path):
    """Return a function that starts a job whose task prints; it returns its id and its output."""
    jobs = []

    def start(*options, stay=""):
        (tmp_path / "beats.py").write_text(BEATS)
        script = tmp_path / "job.sbatch"
        script.write_text(
            f"#!/bin/bash\nexec srun --output='{tmp_path}/out' '{sys.executable}' '{tmp_path}/beats.py' {stay}\n"
        )
        words = ("--requeue", "--open-mode=append", "--output=/dev/null", *options, str(script))
        jobs.append(slurm("sbatch", "--parsable", *words).strip())
        wait_for_job(jobs[-1], "RUNNING")
        output = tmp_path / "out"
        until(lambda: output.exists() and "beat" in output.read_text())
        return jobs[-1], output

    yield start
    slurm("scancel", "--signal=KILL", *jobs)
    slurm("scancel", *jobs)
    for job in jobs:
        wait_for_job(job)


def test_a_preempted_job_is_told_and_has_a_time_of_preemption(beating, sandbox, slurm, wait_for_job, monkeypatch):
    """Whatever the shell says to sbatch is not the urgent job's."""
    job, output = beating("-p", "low", "-N2", stay="stay")
    monkeypatch.setenv("SBATCH_DEPENDENCY", f"afterany:{job}")
    monkeypatch.setenv("SBATCH_GPUS_PER_NODE", "99")
    sandbox.preempt(job)
    record = wait_for_job(job, "RUNNING")
    assert record["PreemptTime"] != "None" and record["Restarts"] == "0"
    until(lambda: "TERM" in output.read_text())
    before = slurm("squeue", "-h", "-o", "%i")
    sandbox.preempt(job)
    assert slurm("squeue", "-h", "-o", "%i") == before, "a second more urgent job is not needed"


def test_a_job_preempted_without_grace_comes_back_as_soon_as_it_may(beating, sandbox, slurm, wait_for_job):
    """What took its nodes must not keep them."""
    job, _ = beating("-p", "nograce", "-N1")
    sandbox.preempt(job)
    assert wait_for_job(job, "PENDING")["Restarts"] == "1"
    assert wait_for_job(job, "RUNNING", timeout_s=30)["Restarts"] == "1"
    assert slurm("squeue", "-h", "-p", "high") == ""


def test_only_one_job_that_runs_can_be_preempted(sandbox, slurm, wait_for_job):
    submit = ("sbatch", "--parsable", "-p", "low", "--output=/dev/null", "--wrap=sleep 99")
    array, held = slurm(*submit, "--array=0,1").strip(), slurm(*submit, "--hold").strip()
    wait_for_job(f"{array}_1", "RUNNING")
    for job, error, said in (
        (held, SlurmddpError, f"job {held} is PENDING; only a running job"),
        ("99999999", ClusterError, "^Slurm does not know job 99999999; `slurmddp status` lists the jobs"),
        ("n1", UsageError, "'n1' is not a job id; give one, as in 17 or"),
        (array, UsageError, f"is an array; give one task of it, as in {array}_0"),
    ):
        with pytest.raises(error, match=said):
            sandbox.preempt(job)
    slurm("scancel", array, held)
    until(lambda: not {array, held} & set(slurm("squeue", "-h", "-o", "%F").split()), 300, lambda: slurm("squeue"))


def test_a_preemption_that_does_not_happen_is_an_error_and_leaves_no_job(beating, sandbox, slurm, monkeypatch):
    """Another job, which nothing preempts, holds a part of the node."""
    job, _ = beating("-p", "low", "-N1", "-w", "n1")
    other, _ = beating("-p", "gpu", "-N1", "-w", "n1")
    monkeypatch.setattr(preemption, "_DEADLINE_S", 2)
    with pytest.raises(ClusterError, match=f"job {job} was not preempted within 2 s: .* does another job hold"):
        sandbox.preempt(job)
    until(lambda: not slurm("squeue", "-h", "-p", "high"), 300, lambda: slurm("squeue"))
    assert {job, other} <= set(slurm("squeue", "-h", "-o", "%i").split())


OFF, ON = {"PreemptMode": "OFF"}, {"PreemptMode": "REQUEUE"}


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ({"p": ON}, "has no partition 'high'; make one, as in: slurmddp sandbox up --partition"),
        ({"p": OFF, "high": OFF}, "make a partition for it, as in: slurmddp sandbox up --partition low:nodes=0"),
        (
            {"p": OFF, "low": ON, "cancel": ON, "high": OFF},
            r"submit it to one of: low cancel, as in: slurmddp submit -p low \.\.\.$",
        ),
    ],
)
def test_a_job_that_nothing_can_preempt_is_refused_with_what_to_type(partitions, said):
    with pytest.raises(ClusterError, match=said):
        preemption.check_preemptible(RUNNING, partitions)


def test_an_urgent_job_asks_for_all_the_nodes_and_ends_at_once():
    script = preemption.preemptor_script(RUNNING._replace(nodes="n[1-2]", node_count=2)).decode()
    assert {"--partition=high", "--nodelist=n[1-2]", "--nodes=2", "--exclusive"} <= set(script.split())
    assert script.endswith("\ntrue\n")


@pytest.mark.usefixtures("slurm_programs")
def test_a_cut_node_is_called_down_while_its_processes_live_on_and_idle_again_once_healed(tmp_path):
    plan = room.Plan(name=f"cut-{os.getpid()}", nodes=2, gpus_per_node=0, slurmd_timeout_s=2, kill_wait_s=2)
    sandbox = room.up(plan, die_with_parent=True)
    env = {**os.environ, **sandbox.environment()}
    output = tmp_path / "beats"
    script = f"#!/bin/bash\nwhile :; do date >>'{output}'; sleep 0.1; done\n"
    words = ["sbatch", "--parsable", "--no-requeue", "-wn2", "--output=/dev/null"]
    subprocess.run(words, env=env, input=script, text=True, check=True, capture_output=True)
    until(output.exists)
    sandbox.disconnect("n2")
    assert sandbox.daemons()["disconnected"] == {"n1": False, "n2": True}
    until(lambda: sandbox.node_records()["n2"]["State"].startswith("DOWN"))
    report = room.report(plan.name)
    assert [part["state"] for part in report["nodes"]] == ["IDLE", f"{sandbox.node_records()['n2']['State']} (cut)"]
    size = output.stat().st_size
    until(lambda: output.stat().st_size > size)
    sandbox.reconnect("n2")
    assert not any(sandbox.daemons()["disconnected"].values())
    until(lambda: sandbox.node_records()["n2"]["State"] == "IDLE")
    sandbox.reconnect("n2")
    sandbox.down()


def test_a_node_can_be_killed_while_it_is_cut_off_and_has_a_cable_when_it_is_on_again(sandbox):
    sandbox.disconnect("n2")
    sandbox.kill("n2")
    assert room.report(sandbox.plan.name)["nodes"][1]["state"] == "off"
    for act in (sandbox.disconnect, sandbox.reconnect):
        with pytest.raises(ClusterError, match="node n2 is off; switch it on with: slurmddp sandbox boot n2"):
            act("n2")
    sandbox.boot("n2")
    assert not sandbox.daemons()["disconnected"]["n2"]
