"""The batch script's part in "nothing is lost": what it does at the end of the ranks, whatever that was.

The ranks are a few lines of shell that leave the records themselves, so that each case takes a second or two.
"""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from slurmddp.render import render
from slurmddp.rundir import RunDir, read_records
from slurmddp.spec import JobSpec

RANKS = """{{% extends "base.sbatch.j2" %}}{{% block launch %}}
  bash {body} "$DDPRUN_RANKS" "$DDPRUN_DIR"
  DDPRUN_STATUS=$?
{{% endblock %}}"""

FIRST_STOPPED = """
case $DDPRUN_ATTEMPT in 0.*) echo "75 rank 0 on n1: told to stop" >$1/0.end ;; *) echo "0 done" >$1/0.end ;; esac
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

    def script(self, body: str, *, name: str = "x", reset_number: int = 1, **values) -> str:
        ranks, template = self.folder / f"{name}.sh", self.folder / f"{name}.j2"
        ranks.write_text(body)
        template.write_text(RANKS.format(body=ranks))
        runs_dir = str(self.folder / "jobs")
        spec = JobSpec(job_name=name, python="python3", template=str(template), runs_dir=runs_dir, **values)
        return render(spec, reset_number=reset_number)

    def sbatch(self, script: str, *words: str, name: str = "x", environ: dict[str, str] | None = None) -> Case:
        done = subprocess.run(
            ["sbatch", "--parsable", *words],
            input=script,
            cwd=self.folder,
            env=self.environ | (environ or {}),
            capture_output=True,
            text=True,
            check=True,
        )
        return Case(done.stdout.strip(), self.run_dir(name))

    def run_dir(self, name: str = "x") -> RunDir:
        return RunDir(self.folder / "jobs" / name)

    def submit(self, body: str, *, name: str = "x", **values) -> Case:
        return self.sbatch(self.script(body, name=name, **values), name=name)


@pytest.fixture
def bench(tmp_path, slurm_env):
    return Bench(tmp_path, slurm_env)


def until(happened, what, timeout_s: float = 60) -> None:
    """Wait; `what` says what did not happen, or returns how it is instead."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what() if callable(what) else what}"
        time.sleep(0.05)


def ended(case: Case, wait_for_job) -> str:
    """Return the status that the job ended with, once it has."""
    job = wait_for_job(case.job_id)
    assert job["JobState"] in ("COMPLETED", "FAILED"), case.log()
    return job["ExitCode"].removesuffix(":0")


def restarts(case: Case, slurm) -> str:
    return re.search(r"Restarts=(\d+)", slurm("scontrol", "show", "job", case.job_id))[1]


ROWS = {
    "done": ('echo "0 done" >$1/0.end; exit 143', "0", 1),
    "done, though a rank failed later": ('echo "0 done" >$1/0.end; echo "76 x" >$1/1.end; exit 9', "0", 1),
    "failed for good": ('echo "77 rank 1: x" >$1/1.end; exit 1', "77", 1),
    "77 beats 76": ('echo "76 x" >$1/1.end; echo "77 y" >$1/2.end', "77", 1),
    "78 beats 77": ('echo "77 x" >$1/1.end; echo "78 y" >$1/2.end', "78", 1),
    "retryable": ('echo "76 rank 1: lost rank 0" >$1/1.end; exit 1', "76", 3),
    "no record": ("exit 5", "5", 3),
    "only rank 0 may say 75": ('echo "75 x" >$1/1.end; exit 5', "5", 3),
    "srun is content, but nobody met": ("exit 0", "76", 3),
    "srun is content, and all had met": ("touch $1/0.begin; exit 0", "0", 1),
    "cured by a restart": ('[ $DDPRUN_ATTEMPT = 0.1 ] && echo "0 done" >$1/0.end || exit 1', "0", 2),
}


@pytest.fixture(scope="module")
def rows(sandbox, tmp_path_factory):
    """All rows of the table, submitted at once."""
    bench = Bench(tmp_path_factory.mktemp("rows"), {**os.environ, **sandbox.environment()})
    return {
        row: bench.submit(body, name=f"row{number}", max_restarts=2)
        for number, (row, (body, _, _)) in enumerate(ROWS.items())
    }


@pytest.mark.parametrize("row", ROWS)
def test_the_records_decide(rows, row, wait_for_job):
    _, status, starts = ROWS[row]
    case = rows[row]
    assert ended(case, wait_for_job) == status
    assert case.attempts() == [f"0.{n}" for n in range(starts)], case.log()
    assert len(case.events("restart")) == starts - 1
    assert case.run.owner.exists() == (status == "78")
    if starts == 3:
        assert "3 start(s) in a row failed, with no new checkpoint since (--max-restarts 2)" in case.log()


def test_a_new_checkpoint_starts_the_count_again_and_ports_are_others(bench, wait_for_job):
    body = """
    n=${DDPRUN_ATTEMPT#0.}
    echo "$MASTER_PORT $DDPRUN_STORE_PORT $DDPRUN_OWNER" >>$2/seen
    [ $n -gt 3 ] || mkdir -p $2/checkpoints/step-00000000$n
    mkdir -p $2/checkpoints/.step-00000009$n $2/checkpoints/broken-step-00000009$n
    echo "76 rank 0: x" >$1/0.end; exit 1
    """
    case = bench.submit(body, max_restarts=1)
    assert ended(case, wait_for_job) == "76"
    assert case.attempts() == ["0.0", "0.1", "0.2", "0.3", "0.4"]
    seen = [line.split() for line in (case.run.path / "seen").read_text().splitlines()]
    assert len({port for line in seen for port in line[:2]}) == 10
    assert [line[3:] for line in seen] == [[case.job_id, f"0.{n}"] for n in range(5)]


HOSTILE = b'quote " back \\ tab \t bell \a del \x7f $(touch x) `y` \xc3\xa9 \xf0\x9f\x90\x9f & ${1} \\n'


def test_told_to_stop_comes_back_as_the_same_job(bench, wait_for_job, slurm):
    body = b'case $DDPRUN_ATTEMPT in 0.0) cat "$2/../reason" >$1/0.end ;; *) echo "0 done" >$1/0.end ;; esac'
    (bench.folder / "jobs").mkdir()
    (bench.folder / "jobs" / "reason").write_bytes(b"75 " + HOSTILE + b"\n")
    case = bench.submit(body.decode())
    assert ended(case, wait_for_job) == "0"
    assert restarts(case, slurm) == "1"
    assert case.attempts() == ["0.0", "1.0"]
    (event,) = case.events("requeue")
    assert event["reason"] == HOSTILE.decode()
    assert (event["job"], event["attempt"], event["rank"], event["excluded"]) == (case.job_id, "0.0", None, [])
    assert isinstance(event["time"], float) and abs(event["time"] - time.time()) < 60
    assert list(event)[:6] == ["time", "event", "job", "attempt", "rank", "host"]
    assert len(case.run.events.read_bytes().splitlines()) == 1
    assert re.fullmatch(r"none \d+\n", case.run.requeues(case.job_id).read_text())
    assert not case.run.owner.exists()


PREEMPTED = """
case $DDPRUN_ATTEMPT in 0.*) touch $2/began; while [ ! -e $2/go ]; do sleep 0.1; done; echo "76 x" >$1/0.end ;;
*) echo "0 done" >$1/0.end ;; esac
"""


def test_a_preempted_job_starts_no_further_step(bench, sandbox, wait_for_job):
    case = bench.submit(PREEMPTED, partition="low", max_restarts=0)
    until((case.run.path / "began").exists, "a step")
    sandbox.preempt(case.job_id)
    case.go()
    assert ended(case, wait_for_job) == "0"
    assert case.attempts() == ["0.0", "1.0"]
    assert case.events("restart") == []
    assert [event["reason"] for event in case.events("requeue")] == ["preempted; no step is started"]


def test_a_job_preempted_during_its_set_up_starts_no_step(bench, sandbox, wait_for_job):
    waiting = 'touch "$DDPRUN_DIR/began"; while [ ! -e "$DDPRUN_DIR/go" ]; do sleep 0.1; done'
    case = bench.submit('echo "0 done" >$1/0.end', partition="low", setup=(waiting,))
    until((case.run.path / "began").exists, "set-up")
    sandbox.preempt(case.job_id)
    case.go()
    assert ended(case, wait_for_job) == "0"
    assert case.attempts() == ["1.0"]


def test_too_little_time_starts_no_step_and_a_limit_without_any_is_refused(bench, slurm, wait_for_job):
    case = bench.submit("touch $2/began\n" + WAIT + "exit 1", signal_lead=100)
    until((case.run.path / "began").exists, "a step")
    slurm("scontrol", "update", f"JobId={case.job_id}", "TimeLimit=1")
    case.go()
    assert ended(case, wait_for_job) == "77"
    assert case.attempts() == ["0.0"]
    (event,) = case.events("requeue")
    assert re.fullmatch(r"\d+ s are left of the time limit; no step is started", event["reason"])
    assert "the time limit is 60 s, and the notice comes 100 s before its end" in case.log()
    assert "give --time 3 or more\n" in case.log()


def test_the_ranks_know_when_to_stop(bench, wait_for_job):
    case = bench.submit('date +%s >$2/now; echo $DDPRUN_STOP_AT >$2/at; echo "0 done" >$1/0.end', time="1-0:10")
    assert ended(case, wait_for_job) == "0"
    now, at = (int((case.run.path / name).read_text()) for name in ("now", "at"))
    assert abs(at - now - (86400 + 600 - 120)) <= 3


def test_a_job_that_may_not_be_requeued_says_so(bench, wait_for_job):
    case = bench.submit(FIRST_STOPPED, requeue=False)
    assert ended(case, wait_for_job) == "75"
    assert "The job may not be requeued (Requeue=0): its state is saved; submit x again to go on" in case.log()
    assert case.events("requeue") == []
    assert not case.run.owner.exists()


def test_own_requeues_have_a_cap(bench, wait_for_job, slurm):
    case = bench.submit('echo "75 x" >$1/0.end', max_requeues=1)
    assert ended(case, wait_for_job) == "75"
    assert restarts(case, slurm) == "1"
    assert "(--max-requeues 1)" in case.log()


def test_requeues_without_progress_have_a_cap(bench, wait_for_job):
    """Each case has ten requeues behind it; only those that were short and without a new checkpoint count."""
    expected = {"none 3": "75", "none 601": "0", "step-000000001 3": "0"}
    fill = '[ $DDPRUN_ATTEMPT != 0.0 ] || yes "{}" | head -n 10 >${{1%/*}}/requeues\n'
    cases = {line: bench.submit(fill.format(line) + FIRST_STOPPED, name=f"r{n}") for n, line in enumerate(expected)}
    assert {line: ended(case, wait_for_job) for line, case in cases.items()} == expected
    assert "requeued itself 10 times in a row without a new checkpoint" in cases["none 3"].log()


def test_a_task_of_an_array_requeues_alone(bench, wait_for_job, slurm):
    """The last task has the array's own number as its job id."""
    script = bench.script(
        "[ $SLURM_ARRAY_TASK_ID = 0 ] && exec sleep 5\n" + FIRST_STOPPED, requeue=True, max_restarts=0
    )
    script = re.sub(r"^(DDPRUN_DIR=\S*)$", r"\1$SLURM_ARRAY_TASK_ID", script, count=1, flags=re.MULTILINE)
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
        until(case.run.batch_log(case.job_id).exists, "the script's start")
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
    until((first.run.path / "began").exists, "a step")
    second = bench.sbatch(script)
    assert ended(second, wait_for_job) == "78"
    assert f"the run belongs to job {first.job_id}, which is RUNNING" in second.log()
    assert first.run.owner.read_text().split()[1] == first.job_id
    first.go()
    assert ended(first, wait_for_job) == "0"
    assert list(first.run.path.glob(".owner*")) == []


def preset_owner(bench: Bench, line: str) -> RunDir:
    run = bench.run_dir()
    run.create()
    run.owner.write_text(line)
    return run


@pytest.mark.parametrize("line", ["{cluster} 4000000 7.0\n", "", "{cluster} {dead} 3.1\n"])
def test_a_dead_holder_is_taken_over(bench, wait_for_job, slurm, line):
    cluster = cluster_name(slurm)
    dead = bench.submit("sleep 60", name="dead")
    until(dead.run.owner.exists, "the holder's start")
    slurm("scancel", dead.job_id)
    preset_owner(bench, line.format(cluster=cluster, dead=dead.job_id))
    case = bench.submit('echo "$DDPRUN_OWNER" >$2/mine; cp $2/owner $2/seen; echo "0 done" >$1/0.end')
    assert ended(case, wait_for_job) == "0"
    assert (case.run.path / "mine").read_text() == (case.run.path / "seen").read_text()
    assert (case.run.path / "mine").read_text() == f"{cluster} {case.job_id} 0.0\n"
    assert list(case.run.path.glob(".owner*")) == []


def cluster_name(slurm) -> str:
    return re.search(r"ClusterName\s*=\s*(\S+)", slurm("scontrol", "show", "config"))[1]


def test_a_holder_on_another_cluster_counts_as_alive(bench, wait_for_job):
    run = preset_owner(bench, "elsewhere 5 0.0\n")
    case = bench.submit("exit 0")
    assert ended(case, wait_for_job) == "78"
    assert (
        f"belongs to job 5 of cluster elsewhere, which cannot be asked here; if that job is gone, remove {run.owner}"
        in (case.log())
    )
    assert run.owner.read_text() == "elsewhere 5 0.0\n"


@pytest.mark.parametrize(("attempt", "status"), [("0.10", "78"), ("2.0", "78"), ("0.0", "0")])
def test_ownership_only_moves_up(bench, wait_for_job, slurm, attempt, status):
    case = bench.submit('echo "0 done" >$1/0.end', hold=True)
    preset_owner(bench, f"{cluster_name(slurm)} {case.job_id} {attempt}\n")
    slurm("scontrol", "release", case.job_id)
    assert ended(case, wait_for_job) == status
    assert case.run.owner.exists() == (status == "78")


def test_of_several_jobs_that_take_over_at_once_one_does(bench, wait_for_job, slurm):
    preset_owner(bench, f"{cluster_name(slurm)} 4000000 0.0\n")
    script = bench.script(WAIT + 'echo "0 done" >$1/0.end')
    cases = [bench.sbatch(script) for _ in range(6)]
    owner, jobs = cases[0].run.owner, ",".join(case.job_id for case in cases)

    def queued() -> list[str]:
        return slurm("squeue", "-h", "-o", "%i %T %r", "-j", jobs).splitlines()

    until(lambda: len(queued()) == 1, queued, 120)
    assert queued()[0].split()[:2] == [owner.read_text().split()[1], "RUNNING"]
    cases[0].go()
    assert sorted(ended(case, wait_for_job) for case in cases) == ["0"] + ["78"] * 5
    assert not owner.exists()


OF_THE_RUN = ("model.pt", "rank-0.pt", "rank-1.pt", "tensorboard", "checkpoints/step-000000005")


def test_reset_sets_aside_once(bench, sandbox, wait_for_job):
    """Neither a restart, nor a preemption, nor a second job of the script wipes what was made since."""
    run = bench.run_dir()
    run.create()
    for name in OF_THE_RUN:
        (run.path / name).mkdir(parents=True)
    body = """
    ls $2/checkpoints >>$2/seen 2>/dev/null; mkdir -p $2/checkpoints/step-000000001
    case $DDPRUN_ATTEMPT in
      0.0) [ -e $2/again ] || exit 1 ;;
      0.1) touch $2/began; while [ ! -e $2/again ]; do sleep 0.1; done; echo "75 preempted" >$1/0.end; exit ;;
    esac
    echo "0 done" >$1/0.end
    """
    script = bench.script(body, reset=True, reset_number=run.next_reset, partition="low")
    case = bench.sbatch(script)
    until((run.path / "began").exists, "the restart")
    sandbox.preempt(case.job_id)
    (run.path / "again").touch()
    assert ended(case, wait_for_job) == "0"
    assert case.attempts() == ["0.0", "0.1", "1.0"]
    kept = [path for path in run.before_reset(1).rglob("*") if path.name != "checkpoints"]
    assert sorted(str(path.relative_to(run.before_reset(1))) for path in kept) == sorted(OF_THE_RUN)
    assert ended(bench.sbatch(script), wait_for_job) == "0"
    assert (run.path / "seen").read_text() == "step-000000001\n" * 3
    assert run.next_reset == 2
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000000001"]


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
case $DDPRUN_ATTEMPT in 0.*) hostname >$2/began; while [ ! -e $2/go ]; do sleep 0.1; done; exit 1 ;;
*) hostname >$2/then; echo "0 done" >$1/0.end ;; esac
"""


def test_a_lost_node_is_left_out(bench, node_fails, wait_for_job):
    case = bench.submit(LOSES_NODE, max_restarts=0)
    until((case.run.path / "began").exists, "a step")
    until((case.run.path / "began").read_text, "a step")
    lost = (case.run.path / "began").read_text().strip()
    node_fails(lost)
    case.go()
    job = wait_for_job(case.job_id)
    assert job["ExitCode"] == "0:0", case.log()
    assert job["ExcNodeList"] == lost
    assert (case.run.path / "then").read_text().strip() != lost
    (event,) = case.events("requeue")
    assert event["excluded"] == [lost]
    assert event["reason"] == f"lost node(s) {lost}"


def test_what_was_left_out_before_stays_so(bench, node_fails, slurm, wait_for_job):
    case = bench.submit(LOSES_NODE, exclude="n1")
    until((case.run.path / "began").exists, "a step")
    node_fails("n2")
    case.go()
    assert wait_for_job(case.job_id, "PENDING")["ExcNodeList"] in ("n1,n2", "n[1-2]")
    slurm("scancel", case.job_id)
    assert wait_for_job(case.job_id)["JobState"] == "CANCELLED"


def test_a_lost_node_that_was_asked_for_is_not_left_out(bench, node_fails, slurm, wait_for_job):
    case = bench.submit(LOSES_NODE, nodelist="n1")
    until((case.run.path / "began").exists, "a step")
    node_fails("n1")
    case.go()
    wait_for_job(case.job_id, "PENDING")
    slurm("scancel", case.job_id)
    assert "n1 cannot be left out: --nodelist asks for it" in case.log()
    assert [event["excluded"] for event in case.events("requeue")] == [[]]


def test_a_templates_own_finish_may_leave_the_end_to_ours(bench, wait_for_job):
    bench.script('echo "76 x" >$1/0.end')
    finish = '{% block finish %}\n  echo "own finish, $DDPRUN_STATUS"\n{% endblock %}'
    (bench.folder / "x.j2").write_text((bench.folder / "x.j2").read_text() + finish)
    runs_dir = str(bench.folder / "jobs")
    script = render(JobSpec(job_name="x", python="python3", template=str(bench.folder / "x.j2"), runs_dir=runs_dir))
    case = bench.sbatch(script)
    assert ended(case, wait_for_job) == "76"
    assert case.attempts() == ["0.0"]
    assert "own finish, 76" in case.log()
    assert not case.run.owner.exists()


SHIM = """#!/bin/bash
# A controller that does not answer the first two questions.
echo x >>{folder}/asked
[ $(wc -l <{folder}/asked) -gt 2 ] || {{ echo "Unable to contact slurm controller (connect failure)" >&2; exit 1; }}
PATH="${{PATH#*:}}" exec scontrol "$@"
"""


def test_without_an_answer_nothing_is_started(bench, wait_for_job, slurm_env):
    shims = bench.folder / "bin"
    shims.mkdir()
    (shims / "scontrol").write_text(SHIM.format(folder=bench.folder))
    (shims / "sleep").write_text("#!/bin/bash\nexec /bin/sleep 0.2\n")
    for shim in shims.iterdir():
        shim.chmod(0o755)
    (bench.folder / "asked").write_text("")
    script = bench.script('echo "0 done" >$1/0.end')
    for name in ("HOSTS", "MASTER_NODEADDR"):
        script = script.replace(f"DDPRUN_{name}=$(scontrol", f"DDPRUN_{name}=$(command -p scontrol")
    case = bench.sbatch(script, environ={"PATH": f"{shims}:{slurm_env['PATH']}"})
    assert ended(case, wait_for_job) == "0"
    assert case.log().count("Slurm does not answer, asking again in 10 s: ") == 2


def shell(bench: Bench, line: str, *words: bytes, environ: dict[str, str] | None = None) -> bytes:
    """Run one of the script's functions."""
    script = bench.script("")
    functions = script[script.index("# --- What happened") : script.index("# --- The ranks: ")]
    command = ["bash", "-c", functions + line, "bash", *words]
    return subprocess.run(
        command, env={"PATH": "/usr/bin:/bin"} | (environ or {}), check=True, capture_output=True
    ).stdout


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_any_reason_is_correct_json(bench, locale):
    texts = [
        bytes(range(1, 128)),
        HOSTILE,
        b"",
        b"\\" * 5,
        b'"&"',
        "é漢🐟\u2028\x85".encode(),
        "\ud7ff\ue000\U0010ffff".encode(),
    ]
    wrong = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xc3\xa9\x80"]
    line = 'for text; do ddprun_json "$text"; echo; done'
    said = shell(bench, line, *texts, *wrong, environ={"LC_ALL": locale}).splitlines()
    assert [json.loads(text) for text in said[: len(texts)]] == [text.decode() for text in texts]
    assert [json.loads(text) for text in said[len(texts) :]] == ["?", "a?", "???", "??", "????", "???", "???"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("0:08", "8"), ("9:09", "549"), ("1:00:00", "3600"), ("08:09:09", "29349"), ("1-00:00:01", "86401")),
        *(("INVALID", "0"), ("UNLIMITED", ""), ("NOT_SET", "")),
    ],
)
def test_a_time_is_read_as_slurm_writes_it(bench, text, seconds):
    assert shell(bench, 'ddprun_seconds "$1"', text.encode()).decode().strip() == seconds
