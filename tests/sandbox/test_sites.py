"""The same job on sites that are configured in other ways: sizing, preemption, status."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from accounting import up_with_accounting
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
TOTAL = 40
PROGRAM = (str(Path(__file__).parents[1] / "programs" / "train.py"), str(TOTAL), "0.1", "10")
TOPOLOGY = "SwitchName=leaf1 Nodes=n2\nSwitchName=leaf2 Nodes=n1\nSwitchName=top Switches=leaf[1-2]\n"
REWRITE = """\
function slurm_job_submit(job, partitions, uid)
  if job.partition == nil or job.partition == "gpu" then job.partition = "low" end
  if job.time_limit > 100 then job.time_limit = 100 end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""
THREADS = (
    "NodeName=n[1-2] NodeAddr=10.77.0.[1-2] Sockets=1 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=16000 Gres=gpu:8"
)
LOW = "PriorityTier=1,PreemptMode=REQUEUE,GraceTime=60"
SCHEDULER = "SchedulerParameters=sched_min_interval=50000,batch_sched_delay=0,bf_interval=1"


@dataclass
class Site:
    lines: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    partitions: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--partition=low",)
    shape: str = "--gpus-per-node=2"
    """With select/linear, Slurm starts no step that has GPUs (22.05 to 26.05)."""
    cpus: str = "2"
    """CPUs a rank, of nodes with 16 CPUs and 8 GPUs of which the job has 2."""
    partition: str = "low"
    """The partition that the job gets."""
    qos: tuple[str, ...] = ()
    """Commands of sacctmgr; the job of QOS `high` then preempts."""


SITES = {
    "linear": Site(("SelectType=select/linear", "SelectTypeParameters="), shape="--ntasks-per-node=2", cpus="8"),
    "whole-nodes": Site(
        partitions=(f"whole:nodes=0,Nodes=ALL,OverSubscribe=EXCLUSIVE,{LOW}",),
        options=("--partition=whole",),
        cpus="8",
        partition="whole",
    ),
    "topology": Site(("TopologyPlugin=topology/tree",), (("topology.conf", TOPOLOGY),)),
    "job-submit-lua": Site(("JobSubmitPlugins=lua",), (("job_submit.lua", REWRITE),), options=()),
    "rate-limit": Site(("SlurmctldParameters=rl_enable,rl_bucket_size=30,rl_refill_rate=10",)),
    "small-arrays": Site(("MaxArraySize=5",)),
    "private": Site(("PrivateData=jobs,nodes,usage",)),
    "threads": Site((THREADS,), cpus="2"),
    "cgroup": Site(
        ("ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup"),
        (("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"),),
    ),
    "requeue-delay": Site((f"{SCHEDULER},requeue_delay=1",)),
    "expedited": Site((f"{SCHEDULER},enable_expedited_requeue",)),
    "qos": Site(
        ("PreemptType=preempt/qos",),
        options=("--qos=low",),
        partition="gpu",
        qos=(
            "add qos low GraceTime=60 PreemptMode=requeue",
            "add qos high Preempt=low Priority=100",
            "modify account where name=root set qos+=low,high",
            "modify user where name=root set qos+=low,high",
        ),
    ),
    "unequal": Site(
        partitions=(f"mixed:nodes=0,Nodes=n[1-2],{LOW}",),
        lines=(
            "NodeName=n1 NodeAddr=10.77.0.1 CPUs=16 RealMemory=16000 Gres=gpu:8",
            "NodeName=n2 NodeAddr=10.77.0.2 CPUs=8 RealMemory=16000 Gres=gpu:8",
        ),
        options=("--partition=mixed",),
        cpus="1",
        partition="mixed",
    ),
}
pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("slurm_programs"), pytest.mark.timeout(300)]


@pytest.fixture(params=SITES)
def site(request, tmp_path) -> Iterator[tuple[Site, slurm_sandbox.Sandbox]]:
    site = SITES[request.param]
    if request.param == "cgroup" and not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip("cgroup v2: slurmd wants systemd for it")
    for name, text in site.files:
        (tmp_path / name).write_text(text)
    files = tuple(str(tmp_path / name) for name, _ in site.files)
    shapes = tuple(map(slurm_sandbox.Shape.parse, site.partitions))
    name, accounting = f"{request.param}-{os.getpid()}", bool(site.qos)
    plan = slurm_sandbox.Plan(name=name, slurm_conf=site.lines, etc=files, partitions=shapes, accounting=accounting)
    running = up_with_accounting(plan)
    for words in site.qos:
        sacctmgr = ["sacctmgr", "--immediate", *words.split()]
        subprocess.run(sacctmgr, env={**os.environ, **running.environment()}, stdout=subprocess.DEVNULL, check=True)
    yield site, running
    running.down()


def test_a_job_is_sized_preempted_and_done(site, tmp_path):
    site, sandbox = site
    environ = {**os.environ, **sandbox.environment(), "OMP_NUM_THREADS": "1"}

    def cli(*words: str) -> str:
        command = [SLURMDDP, *words]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False).stdout

    job = ("--nodes=2", site.shape, "--launcher=fork", *site.options, "--name=x", *PROGRAM)
    assert re.findall(r"--cpus-per-task=(\d+)", cli("render", *job))[0] == site.cpus
    job_id = cli("submit", *job).strip()
    run = RunDir(tmp_path / "jobs" / "x")
    steps = run.path / "steps.0"
    until(lambda: steps.exists() and len(taken(steps)) > 12, otherwise=lambda: cli("diagnose", "x"))
    if site.qos:
        preemptor = ["sbatch", "--qos=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"]
        subprocess.run(preemptor, env=environ, stdout=subprocess.DEVNULL, check=True)
    else:
        sandbox.preempt(job_id)

    def status() -> dict:
        (found,) = json.loads(cli("status", "x", "--json"))["jobs"]
        return found

    until(lambda: status()["state"] == "COMPLETED", otherwise=status, pause_s=ASK_SLURM_S)
    assert (status()["job_id"], status()["partition"]) == (job_id, site.partition)
    assert sorted(set(taken(steps))) == list(range(TOTAL))
    (requeue,) = (event for event in read_records(run.events) if event["event"] == "requeue")
    assert "stop signal received at step" in requeue["reason"]


def taken(steps: Path) -> list[int]:
    return [int(line.split()[0]) for line in steps.read_text().splitlines()]
