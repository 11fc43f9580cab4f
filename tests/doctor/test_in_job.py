"""The long look from the nodes, on a real Slurm: a healthy pair of nodes, and faults that are named with their host."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from polling import ASK_SLURM_S, until

from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.doctor import in_job
from slurmddp.doctor.in_job import build_check_spec, read_findings
from slurmddp.errors import UsageError
from slurmddp.runs.files import append_record, read_records
from slurmddp.runs.layout import RunDir
from slurmddp.submission.allocation import step_environment, step_script

SLURMDDP = Path(sys.executable).parent / "slurmddp"
OTHER_TORCH = """
import os, sys
if os.environ.get("SLURMD_NODENAME") == "n2":
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "other"))
"""
"""A stand-in for an environment that is another on one node: there a package torch 9.9.9 seems to be installed."""


@pytest.fixture
def cli(slurm_env, tmp_path, monkeypatch):
    """Run slurmddp in an empty folder, pointed at the sandbox."""
    monkeypatch.chdir(tmp_path)

    def run(*words, environ=None):
        environment = {**slurm_env, "OMP_NUM_THREADS": "1", **(environ or {})}
        return subprocess.run(
            [SLURMDDP, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture
def other_torch(tmp_path):
    """Return a folder for PYTHONPATH that shows n2 another torch."""
    package = tmp_path / "path" / "other" / "torch-9.9.9.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")
    (tmp_path / "path" / "sitecustomize.py").write_text(OTHER_TORCH)
    return str(tmp_path / "path")


@pytest.fixture
def hosts_of_n2(slurm, tmp_path):
    """Let n2 know no names, as long as the test lasts."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n10.77.0.254 login\n")
    slurm("srun", "-N1", "-w", "n2", "mount", "--bind", str(tmp_path / "hosts"), "/etc/hosts")
    yield
    slurm("srun", "-N1", "-w", "n2", "umount", "/etc/hosts")


def found(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str, str]]:
    result = json.loads(done.stdout)
    return {each["check"]: (each["level"], each["host"], each["what"]) for each in result["findings"]}


def test_two_healthy_nodes_pass_every_look_and_nothing_is_left_behind(cli, tmp_path):
    done = cli("doctor", "--in-job", "--json", "-N", "2", "--gpus-per-node", "2", "--launcher", "fork")
    assert done.returncode == 0, done.stdout + done.stderr
    looks = found(done)
    for check in ("versions", "gpus", "shm", "names", "ports", "folder", "clock", "notice", "all-reduce", "links"):
        assert looks[check][0] == "ok", looks[check]
    assert "n1 10.77.0.1" in looks["names"][2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("hosts_of_n2")
def test_faults_of_a_node_are_named_with_it(cli, other_torch):
    """Names that do not resolve, another torch, and two ranks on one GPU; the ranks meet all the same."""
    asked = ("-N", "2", "--ntasks-per-node", "2", "--gpus-per-node", "1", "--env", f"PYTHONPATH={other_torch}")
    done = cli("doctor", "--in-job", "--json", *asked)
    looks = found(done)
    assert looks["names"][:2] == ("warning", "n2") and "the name n1 does not resolve" in looks["names"][2]
    assert looks["versions"][:2] == ("warning", "n2") and "9.9.9" in looks["versions"][2]
    assert looks["gpus"] == ("warning", "n2", "ranks 2, 3 share 1 GPU: 0")
    assert done.returncode == 0, "none of these certainly breaks a job"


def test_the_look_before_each_start_names_the_node_and_lets_the_job_run(cli, tmp_path, other_torch):
    (tmp_path / "train.py").write_text("print('began')\n")
    words = ("--launcher", "fork", "--env", f"PYTHONPATH={other_torch}", "--wait", "train.py")
    done = cli("submit", "-N", "2", "--ntasks-per-node", "2", *words)
    assert done.returncode == 0, done.stderr
    run = RunDir(tmp_path / "jobs" / "train")
    (log,) = run.logs.glob("*/0.0/0.out")
    *before, last = log.read_text().splitlines()
    assert [line for line in before if line.startswith("WARNING: n2: torch differs: ")] and last == "began"
    (told,) = [record for record in read_records(run.events) if record["event"] == "finding"]
    assert (told["check"], told["level"], told["on_host"]) == ("versions", "warning", "n2")


@pytest.mark.usefixtures("other_torch")
def test_inside_an_allocation_a_step_looks_with_what_the_job_would_have(slurm_env, tmp_path):
    """Here the set-up leads n2 to another torch."""
    job = ["--ntasks-per-node=1", "-c2", "--launcher=fork", "--setup-file=own.sh", '--setup=export PYTHONPATH="$FOUND"']
    words = [SLURMDDP, "doctor", "--in-job", "--json", *job]
    (tmp_path / "own.sh").write_text("FOUND=$PWD/path\n")
    allocated = ["salloc", "--quiet", "-N2", "--ntasks-per-node=1", "-c4"]
    environment = {**slurm_env, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*allocated, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    looks = found(done)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {
        check: looks[check] for check in ("names", "ports", "folder", "clock", "notice") if looks[check][0] != "ok"
    } == {}
    assert looks["versions"][:2] == ("warning", "n2") and "9.9.9" in looks["versions"][2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.sh", "path"]


HOLDER = """
import socket
held = [socket.create_server(("", port)) for port in (18880, 18881)]
print("held", flush=True)
while True:
    held[1].accept()[0].close()
"""


@pytest.fixture
def allocation(slurm_env, slurm, wait_for_job):
    """Return a look from inside an allocation of both nodes, which ends with the test."""
    words = ["salloc", "--no-shell", "-N2", "--ntasks-per-node=2", "-c1"]
    said = subprocess.run(words, env=slurm_env, capture_output=True, text=True, timeout=300, check=True).stderr
    job_id = re.findall(r"Granted job allocation (\d+)", said)[0]
    environ = {"SLURM_JOB_ID": job_id, "SLURM_JOB_NODELIST": "n[1-2]"}
    yield environ
    slurm("scancel", job_id)
    wait_for_job(job_id)


def test_what_keeps_the_ranks_from_meeting_is_named_with_its_host(allocation, cli, slurm, slurm_env, sandbox, tmp_path):
    """A port that a program holds on the first node, a folder that is read-only on the other, and its link cut."""

    def look(*words):
        done = cli("doctor", "--in-job", "--json", "--ntasks-per-node", "1", *words, environ=allocation)
        assert done.returncode == 1, done.stdout + done.stderr
        return next(each for each in json.loads(done.stdout)["findings"] if each["level"] == "error")

    step = ["srun", f"--jobid={allocation['SLURM_JOB_ID']}", "--overlap", "-N1", "-n1"]
    held = [*step, "-w", "n1", sys.executable, "-uc", HOLDER]
    shared = tmp_path / "shared"
    shared.mkdir()
    slurm(*step, "-w", "n2", "bash", "-c", f"mount --bind {shared} {shared} && mount -o remount,ro,bind {shared}")
    with (
        subprocess.Popen(held, env=slurm_env, stdout=subprocess.PIPE, text=True) as holder,
        ThreadPoolExecutor() as pool,
    ):
        assert holder.stdout.readline() == "held\n"
        in_folder = pool.submit(look, f"--runs-dir={shared}")  # nearly all of it is waiting
        found = look("--port-range=18880-18881")
        holder.terminate()
    assert "port 18881 on n1 is taken by a program that is not rank 0 of this job" in found["what"]
    found = in_folder.result()
    slurm(*step, "-w", "n2", "umount", str(shared))
    assert (found["check"], found["host"]) == ("folder", "n2") and "read-only there" in found["why"]

    sandbox.disconnect("n2")
    found = look()
    sandbox.reconnect("n2")
    again = [*step, "-w", "n2", "true"]
    until(lambda: not subprocess.run(again, env=slurm_env, capture_output=True, check=False).returncode)
    assert (found["check"], found["host"]) == ("meeting", "n2") and "Communication connection failure" in found["what"]


def test_a_look_that_is_interrupted_leaves_no_step_and_ends_no_other(allocation, slurm, slurm_env, tmp_path):
    def steps():
        said = slurm("squeue", "--steps", "--noheader", f"--jobs={allocation['SLURM_JOB_ID']}", "--format=%j")
        return sorted(name for name in said.split() if name != "extern")

    own = ["srun", f"--jobid={allocation['SLURM_JOB_ID']}", "--overlap", "-N1", "-n1", "sleep", "600"]
    look = [sys.executable, "-m", "slurmddp", "doctor", "--in-job", "--ntasks-per-node", "1"]
    with subprocess.Popen(own, env=slurm_env) as sleeper:
        with subprocess.Popen(look, env=slurm_env | allocation, cwd=tmp_path, start_new_session=True) as looking:
            until(lambda: any(name.startswith(".doctor-") for name in steps()), pause_s=ASK_SLURM_S)
            os.killpg(looking.pid, signal.SIGINT)
        until(lambda: steps() == ["sleep"], otherwise=steps, pause_s=ASK_SLURM_S)
        sleeper.terminate()
    assert looking.returncode == 130
    assert not list(tmp_path.rglob(".doctor-*"))


def test_a_look_by_a_job_that_is_interrupted_leaves_neither_job_nor_folder(slurm, slurm_env, tmp_path):
    words = ["doctor", "--in-job", "--ntasks-per-node=1", "-c1", "--setup=sleep 60"]
    looking = subprocess.Popen([SLURMDDP, *words], env=slurm_env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    logs = until(lambda: list(tmp_path.glob("jobs/.doctor-*/doctor/logs/*.out")))
    looking.send_signal(signal.SIGINT)
    said = looking.communicate(timeout=300)[1]
    number = logs[0].stem
    assert looking.returncode == 130, said
    assert "CANCELLED" in slurm("squeue", "--states=all", "--noheader", "--format=%T", f"--jobs={number}")
    assert not list(tmp_path.rglob(".doctor-*"))


def test_before_the_queue_the_cluster_is_asked(cli):
    done = cli("doctor", "--json", "-N", "2", "--gpus-per-node", "8", "--", "--task", "linear")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {found(done)[check][0] for check in ("slurm", "request", "sbatch", "python", "program")} == {"ok"}
    done = cli("doctor", "--json", "-N", "3", "--gpus-per-node", "16", "--", "--task", "linear")
    assert done.returncode == 3
    assert found(done)["request"][0] == "error"


def spec(**changes) -> JobSpec:
    return JobSpec(**({"job_name": "exp", "command": ("train.py",)} | changes))


def test_the_look_asks_for_the_same_nodes_and_for_little_time(tmp_path):
    asked = spec(nodes=4, gpus_per_node="a100:8", partition="gpu", time="2-00:00:00", signal_lead=900, hold=True)
    look = build_check_spec(asked, tmp_path)
    assert (look.nodes, look.gpus_per_node, look.partition, look.command) == (4, "a100:8", "gpu", in_job.NODE_CHECK)
    assert (look.time, look.runs_dir) == ("10", str(tmp_path))
    assert not (look.requeue or look.hold or look.preflight) and look.after_signal_exit_0 == "done"
    assert build_check_spec(spec(time="5"), tmp_path).time == "5"


def test_a_step_has_the_ranks_and_cpus_asked_for_on_each_node():
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_CPUS_PER_TASK": "4"}
    step = step_environment(spec(gpus_per_node="2"), environ, "x")
    assert (step["SLURM_JOB_ID"], step["SLURM_NNODES"], step["SLURM_NTASKS"]) == ("17", "3", "6")
    assert (step["SLURM_NTASKS_PER_NODE"], step["SLURM_CPUS_PER_TASK"]) == ("2", "4")
    assert step_environment(spec(cpus_per_task=3), environ, "x")["SLURM_CPUS_PER_TASK"] == "3"


def test_a_step_is_started_as_the_job_would_be_and_leaves_the_allocation_alone():
    asked = spec(container="x.sqsh", module=("cuda",), env=("A=1",), launcher="fork", requeue=False)
    script = step_script(asked).decode()
    for line in ("module load cuda", "export A=1", "MASTER_ADDR", "--container-image", "runtime.launch.fork"):
        assert line in script
    assert "--single-attempt" in script
    assert "-m slurmddp.worker" in step_script(spec(launcher="manual")).decode()


def test_a_set_up_that_fails_in_an_allocation_is_told(tmp_path):
    asked = Resolved(spec(runs_dir=str(tmp_path / "runs"), setup=("(exit 9)",), ntasks_per_node=1), {})
    environ = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n1", "PATH": os.environ["PATH"]}
    (error,) = in_job.check_by_step(asked, environ, print)
    assert (error.level, error.what) == ("error", "set-up failed with status 9: (exit 9)")


def test_a_job_id_without_nodes_is_no_allocation(tmp_path):
    asked = Resolved(spec(runs_dir=str(tmp_path / "runs")), {})
    with pytest.raises(UsageError, match="SLURM_JOB_ID=17 without SLURM_JOB_NODELIST is no allocation"):
        in_job.check_by_step(asked, {"SLURM_JOB_ID": "17"}, print)
    assert list(tmp_path.iterdir()) == []


NO_RECORD = "the job left no record of its end"
LATE = "rank 0 on n1: rank 1 (n2) did not arrive within 60 s"
NO_IO = "srun: error: task 1 launch failed: Slurmd could not connect IO\n"
CUT = "srun: error: Task launch for StepId=17.0 failed on node n2: Communication connection failure\n"
FAILED = "srun: error: Node failure on n2\nsrun: error: n1: task 0: Exited with exit code 76\n"
"""Words of Slurm 22.05: for a folder that is read-only on one node, and when a link is cut."""


@pytest.mark.parametrize(
    ("log", "reason", "check", "host", "what"),
    [
        ("", "rank 1 on n2: no way", "meeting", "", "rank 1 on n2: no way"),
        ("srun: error: launch failed\n", "", "meeting", "", f"{NO_RECORD}; srun: error: launch failed"),
        (
            *("srun: error: n2: no file\n", "the status is srun's", "meeting", ""),
            "the status is srun's; srun: error: n2: no file",
        ),
        ("", "", "meeting", "", NO_RECORD),
        (NO_IO, LATE, "folder", "n2", LATE),
        (FAILED, "", "meeting", "n2", "; ".join([NO_RECORD, *FAILED.splitlines()])),
        (CUT, "", "meeting", "n2", f"{NO_RECORD}; {CUT.strip()}"),
    ],
)
def test_a_look_that_did_not_end_says_why(tmp_path, log, reason, check, host, what):
    run = RunDir(tmp_path)
    run.logs.mkdir()
    run.batch_log("17").write_text(log)
    head = {"time": 1.0, "job": "17", "attempt": "0.0", "rank": None, "host": "n1"}
    for kind in ("attempt_end", "job_end") if reason else ():
        append_record(run.events, {**head, "event": kind, "status": 76, "reason": reason})
    (error,) = read_findings(run, "17")
    assert (error.check, error.level, error.host, error.what) == (check, "error", host, what)
    assert ("--runs-dir" in error.advice) == (check == "folder")
    run.findings.write_text(json.dumps({"complete": False, "findings": [{"check": "x", "level": "ok", "what": "y"}]}))
    assert [each.check for each in read_findings(run, "17")] == ["x", "folder" if check == "folder" else "ranks"]


def test_a_look_takes_back_every_folder_that_it_has_made(tmp_path):
    (tmp_path / "there").mkdir()
    with in_job._temporary_folder(str(tmp_path / "there" / "a" / "b"), print) as folder:
        assert folder.is_dir()
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
