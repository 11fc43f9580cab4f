"""Batch script and supervisor on a real Slurm: what no stand-in can show (the branches are in tests/batch).

The ranks are a few lines of shell that leave the records themselves, so that each case takes a second or two.
"""

import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from polling import until

from slurmddp.config.job_spec import JobSpec
from slurmddp.monitoring import follow
from slurmddp.monitoring.status import query_jobs
from slurmddp.outcome import Kind
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target
from slurmddp.script.render import render

RANKS = """{{% extends "base.sbatch.j2" %}}{{% block launch %}}
  bash {body} "$SLURMDDP_ATTEMPT_DIR" "$SLURMDDP_RUN_DIR"
{{% endblock %}}"""

FIRST_STOPPED = """
case $SLURMDDP_ATTEMPT in
  0.*) echo "75 rank 0 on n1: stop signal received" >$1/0.end ;;
  *) echo "0 done" >$1/0.end ;;
esac
"""
WAIT = 'while [ ! -e "$2/go" ]; do sleep 0.1; done\n'


class Case(NamedTuple):
    """A job that was submitted, and its run's folder."""

    job_id: str
    run: RunDir

    def attempts(self) -> list[str]:
        return self.run.attempts(self.job_id)

    def log(self) -> str:
        return self.run.batch_log(self.job_id).read_text(errors="replace")

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def go(self) -> None:
        (self.run.path / "go").touch()


class Bench:
    """Submits jobs whose ranks are `body`, a shell script with the ranks' folder and the run's as its arguments."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.environ = environ

    def script(self, body: str, *, name: str = "x", **values) -> str:
        ranks, template = self.folder / f"{name}.sh", self.folder / f"{name}.j2"
        ranks.write_text(body)
        template.write_text(RANKS.format(body=ranks))
        return render(JobSpec(job_name=name, template=str(template), runs_dir=str(self.folder / "jobs"), **values))

    def sbatch(self, script: str, *words: str, name: str = "x", environ: dict[str, str] | None = None) -> Case:
        options = {"cwd": self.folder, "env": self.environ | (environ or {}), "capture_output": True, "text": True}
        done = subprocess.run(["sbatch", "--parsable", *words], input=script, **options, check=True)
        return Case(done.stdout.strip(), self.run_dir(name))

    def run_dir(self, name: str = "x") -> RunDir:
        return RunDir(self.folder / "jobs" / name)

    def submit(self, body: str, *, name: str = "x", **values) -> Case:
        return self.sbatch(self.script(body, name=name, **values), name=name)


pytestmark = pytest.mark.usefixtures("long_grace")


@pytest.fixture
def bench(tmp_path, slurm_env):
    return Bench(tmp_path, slurm_env)


def ended(case: Case, wait_for_job) -> str:
    """Return the status that the job ended with, once it has."""
    job = wait_for_job(case.job_id)
    assert job["JobState"] in ("COMPLETED", "FAILED"), case.log()
    return job["ExitCode"].removesuffix(":0")


def restarts(case: Case, slurm) -> str:
    return re.search(r"Restarts=(\d+)", slurm("scontrol", "show", "job", case.job_id))[1]


HOSTILE = b'quote " back \\ tab \t bell \a del \x7f $(touch x) `y` \xc3\xa9 \xf0\x9f\x90\x9f & ${1} \\n'


def test_told_to_stop_comes_back_as_the_same_job(bench, wait_for_job, slurm):
    body = b'case $SLURMDDP_ATTEMPT in 0.0) cat "$2/../reason" >$1/0.end ;; *) echo "0 done" >$1/0.end ;; esac'
    (bench.folder / "jobs").mkdir()
    (bench.folder / "jobs" / "reason").write_bytes(b"75 " + HOSTILE + b"\n")
    case = bench.submit(body.decode())
    assert ended(case, wait_for_job) == "0"
    assert restarts(case, slurm) == "1"
    assert case.attempts() == ["0.0", "1.0"]
    (event,) = case.events("requeue")
    assert event["reason"] == HOSTILE.decode()
    assert (event["job"], event["attempt"], event["rank"], event["excluded"]) == (case.job_id, "0.0", None, [])
    kinds = [event["event"] for event in read_records(case.run.events)]
    assert kinds == ["attempt_start", "attempt_end", "requeue", "attempt_start", "attempt_end", "job_end"]
    assert case.run.requeues(case.job_id).read_text() == "idle\n"
    assert not case.run.owner.exists()


PREEMPTED = """
case $SLURMDDP_ATTEMPT in 0.*) touch $2/began; while [ ! -e $2/go ]; do sleep 0.1; done; echo "76 x" >$1/0.end ;;
*) echo "0 done" >$1/0.end ;; esac
"""


def test_a_preempted_job_starts_no_further_step(bench, sandbox, wait_for_job):
    case = bench.submit(PREEMPTED, partition="low", max_restarts=0)
    until((case.run.path / "began").exists)
    sandbox.preempt(case.job_id)
    case.go()
    assert ended(case, wait_for_job) == "0"
    assert case.attempts() == ["0.0", "1.0"]
    assert case.events("restart") == []
    (requeue,) = case.events("requeue")
    assert requeue["reason"].startswith("preempted; no step is started; the last attempt: ")


@pytest.mark.parametrize("partition", ["low", "cancel"])
def test_a_training_that_is_done_within_the_grace_time_has_succeeded(bench, sandbox, slurm, wait_for_job, partition):
    """From 24.05 on Slurm counts its job as preempted: it starts it again, or has it as PREEMPTED."""
    case = bench.submit("touch $2/began\n" + WAIT + 'echo "0 done" >$1/0.end', partition=partition)
    until((case.run.path / "began").exists)
    words = ("--parsable", "--output=/dev/null", f"--dependency=afterok:{case.job_id}", "--wrap=true")
    dependent = slurm("sbatch", *words).strip()
    sandbox.preempt(case.job_id)
    case.go()
    ended = follow.wait_for_job(case.run, case.job_id, bench.environ, notice=lambda _: None)
    (status,) = query_jobs([Target(case.run, (case.job_id,))], bench.environ)
    assert (ended.kind, status.state) == (Kind.DONE, "COMPLETED"), case.log()
    assert case.attempts() == ["0.0"]
    assert wait_for_job(dependent)["JobState"] == "COMPLETED", case.log()


def test_a_job_preempted_during_its_set_up_starts_no_step(bench, sandbox, wait_for_job):
    waiting = 'touch "$SLURMDDP_RUN_DIR/began"; while [ ! -e "$SLURMDDP_RUN_DIR/go" ]; do sleep 0.1; done'
    case = bench.submit('echo "0 done" >$1/0.end', partition="low", setup=(waiting,))
    until((case.run.path / "began").exists)
    sandbox.preempt(case.job_id)
    case.go()
    assert ended(case, wait_for_job) == "0"
    assert case.attempts() == ["1.0"]


def test_too_little_time_starts_no_step_and_a_limit_without_any_is_refused(bench, slurm, wait_for_job):
    case = bench.submit("touch $2/began\n" + WAIT + "exit 1", signal_lead=100)
    until((case.run.path / "began").exists)
    slurm("scontrol", "update", f"JobId={case.job_id}", "TimeLimit=1")
    case.go()
    assert ended(case, wait_for_job) == "77"
    assert case.attempts() == ["0.0"]
    (event,) = case.events("requeue")
    left = r"\d+ s are left of the time limit; no step is started; the last attempt: no rank left a record .*"
    assert re.fullmatch(left, event["reason"])
    assert "the time limit is 60 s, and the notice comes 100 s before its end" in case.log()
    assert "give --time 3 or more" in case.log()


def test_the_ranks_know_when_to_stop(bench, wait_for_job):
    case = bench.submit('date +%s >$2/now; echo $SLURMDDP_STOP_AT >$2/at; echo "0 done" >$1/0.end', time="1-0:10")
    assert ended(case, wait_for_job) == "0"
    now, at = (int((case.run.path / name).read_text()) for name in ("now", "at"))
    assert -60 <= at - now - (86400 + 600 - 120) <= 3, "the ranks of a busy machine begin later"


def test_a_task_of_an_array_requeues_alone(bench, wait_for_job, slurm):
    """The last task has the array's own number as its job id."""
    script = bench.script(
        "[ $SLURM_ARRAY_TASK_ID = 0 ] && exec sleep 5\n" + FIRST_STOPPED, requeue=True, max_restarts=0
    )
    script = re.sub(r"^(export SLURMDDP_RUN_DIR=\S*)$", r"\1$SLURM_ARRAY_TASK_ID", script, count=1, flags=re.MULTILINE)
    array = bench.sbatch(script, "--array=0-1").job_id
    first, last = (Case(f"{array}_{task}", bench.run_dir(f"x{task}")) for task in (0, 1))
    assert ended(last, wait_for_job) == "0"
    assert ended(first, wait_for_job) == "76"
    assert [restarts(case, slurm) for case in (first, last)] == ["0", "1"]
    assert [case.attempts() for case in (first, last)] == [["0.0"], ["0.0", "1.0"]]


ANY = ("PENDING", "RUNNING", "COMPLETING", "CANCELLED", "FAILED", "COMPLETED")


def test_cancelled_stays_cancelled(bench, slurm, wait_for_job):
    """At several instants around the start, the end of the ranks, and the requeue."""
    bodies = {"run": "sleep 60", "stop": 'sleep 0.3; echo "75 x" >$1/0.end', "crash": "exit 1"}
    cases = []
    for number, (kind, delay_s) in enumerate((kind, delay_s) for kind in bodies for delay_s in (0.0, 0.15, 0.35, 0.6)):
        case = bench.submit(bodies[kind], name=f"c{number}", max_restarts=1000)
        until(case.run.batch_log(case.job_id).exists)
        time.sleep(delay_s)
        slurm("scancel", case.job_id)
        cases.append(case)
    for case in cases:
        assert wait_for_job(case.job_id)["JobState"] == "CANCELLED", case.log()
    time.sleep(7)  # longer than a requeued job waits here
    assert {wait_for_job(case.job_id, *ANY)["JobState"] for case in cases} == {"CANCELLED"}


def test_a_second_job_of_a_run_ends_at_once(bench, wait_for_job):
    script = bench.script("touch $2/began\n" + WAIT + 'echo "0 done" >$1/0.end')
    first = bench.sbatch(script)
    until((first.run.path / "began").exists)
    second = bench.sbatch(script)
    assert ended(second, wait_for_job) == "78"
    assert f"the run belongs to job {first.job_id}, which is RUNNING" in second.log()
    assert first.run.owner.read_text().split()[1] == first.job_id
    first.go()
    assert ended(first, wait_for_job) == "0"
    assert list(first.run.path.glob(".owner*")) == []


def test_of_several_jobs_that_take_over_at_once_one_does(bench, wait_for_job, slurm):
    cluster = re.search(r"ClusterName\s*=\s*(\S+)", slurm("scontrol", "show", "config"))[1]
    run = bench.run_dir()
    run.create()
    run.owner.write_text(f"{cluster} 4000000 0.0\n")
    script = bench.script(WAIT + 'echo "0 done" >$1/0.end')
    cases = [bench.sbatch(script) for _ in range(6)]
    jobs = ",".join(case.job_id for case in cases)

    def queued() -> list[str]:
        return slurm("squeue", "-h", "-o", "%i %T %r", "-j", jobs).splitlines()

    until(lambda: len(queued()) == 1, otherwise=queued)
    assert queued()[0].split()[:2] == [run.owner.read_text().split()[1], "RUNNING"]
    cases[0].go()
    assert sorted(ended(case, wait_for_job) for case in cases) == ["0"] + ["78"] * 5
    assert not run.owner.exists()


@pytest.fixture
def node_fails(slurm):
    """Return a function that makes Slurm say that a node fails; it is well again afterwards."""
    failing = []

    def fail(node: str) -> None:
        failing.append(node)
        slurm("scontrol", "update", f"NodeName={node}", "State=FAIL", "Reason=test")

    yield fail
    for node in failing:
        slurm("scontrol", "update", f"NodeName={node}", "State=RESUME")


LOSES_NODE = """
case $SLURMDDP_ATTEMPT in 0.*) hostname >$2/began; while [ ! -e $2/go ]; do sleep 0.1; done; exit 1 ;;
*) hostname >$2/then; echo "0 done" >$1/0.end ;; esac
"""


def test_a_lost_node_is_left_out(bench, node_fails, wait_for_job):
    case = bench.submit(LOSES_NODE, max_restarts=0)
    until((case.run.path / "began").exists)
    until((case.run.path / "began").read_text)
    lost = (case.run.path / "began").read_text().strip()
    node_fails(lost)
    case.go()
    job = wait_for_job(case.job_id)
    assert job["ExitCode"] == "0:0", case.log()
    assert job["ExcNodeList"] == lost
    assert (case.run.path / "then").read_text().strip() != lost
    (event,) = case.events("requeue")
    assert event["excluded"] == [lost]
    assert event["reason"] == f"lost node {lost}"


def test_a_set_up_line_that_fails_ends_the_job_with_its_status_and_a_record(bench, wait_for_job):
    (bench.folder / "site.sh").write_text("false\ntrue\n")
    setup = (f"source {bench.folder}/site.sh", "export A=1", "false || true", "(exit 9)", "true")
    case = bench.submit("true", setup=setup)
    assert ended(case, wait_for_job) == "9"
    line = "set-up failed with status 9: (exit 9)\n"
    assert case.log() == f"slurmddp: {line}"
    assert case.run.batch_record(case.job_id).read_text() == f"9 {line}"
    assert case.attempts() == []


def test_a_supervisor_without_its_python_says_so_in_a_line(bench, wait_for_job):
    case = bench.submit("true", supervisor_python="/gone/bin/python")
    assert ended(case, wait_for_job) == "127"
    assert case.log().count("\n") == 1 and " /gone/bin/python: No such file or directory" in case.log()
