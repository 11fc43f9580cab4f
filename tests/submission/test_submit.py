"""What can go wrong between a request and the record of sbatch's answer; a real Slurm, some with a shim before it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as room
from slurmddp.cluster.request import Request
from slurmddp.config import resolve
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.sandbox import configuration
from slurmddp.script.build import Script
from slurmddp.slurm import queries
from slurmddp.slurm.client import LostAnswerError
from slurmddp.slurm.job_info import JobId, JobInfo
from slurmddp.submission import notices, submit, submit_once
from slurmddp.submission.compatibility import find_change

REAL = 'PATH="${PATH#*:}" '
TIMED_OUT = "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1\n"


@pytest.fixture
def shim(tmp_path, monkeypatch, slurm_env):
    """Return a function that puts a program before Slurm's own, and the environment that finds it.

    `sbatch --test-only` is answered by the real one.
    """
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()

    def put(name: str, body: str) -> dict[str, str]:
        tested = f'[ "${{1:-}}" != --test-only ] || {REAL} exec {name} "$@"'
        (folder / name).write_text(f"#!/bin/bash\n{tested}\n{body}\n")
        (folder / name).chmod(0o755)
        return slurm_env | {"PATH": f"{folder}:{slurm_env['PATH']}"}

    return put


@pytest.fixture
def environ(shim):
    """Return an environment in which Slurm's own programs answer, but for srun, which no submission needs."""
    return shim("srun", "exit 1")


@pytest.fixture
def name(slurm):
    """Return a job name of this test's own, and cancel what it leaves."""
    unique = f"s{os.getpid()}-{time.monotonic_ns()}"
    yield unique
    slurm("scancel", "--name", unique)


def started(name: str, environ: dict[str, str], *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "slurmddp", "submit", "--hold", "--name", name, *words]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_file(path: str, process: subprocess.Popen) -> None:
    """Wait for the file that a shim makes, as long as the process that starts it lives."""
    while not Path(path).exists():
        assert process.poll() is None, ended(process)
        time.sleep(0.02)


def ended(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def submitted(name: str, environ: dict[str, str], *words: str) -> tuple[int, str, str]:
    return ended(started(name, environ, *words))


def queued(slurm, name: str) -> list[str]:
    return slurm("squeue", "-h", "--states=all", "-n", name, "-o", "%i").split()


def test_answers_that_stay_lost_end_in_a_line_that_says_where_to_look(shim, monkeypatch, name):
    environ = shim("sbatch", f"cat >/dev/null; echo x >>tries; {TIMED_OUT}")
    monkeypatch.setattr(submit_once, "FIND_PAUSES_S", (0.0,))
    resolved = resolve.resolve(options={"job_name": name}, words=(), job_file=None, environ={})
    with pytest.raises(LostAnswerError, match=r"lost 3 times .*squeue --name="):
        submit.submit(Request(resolved), change=False, environ=environ, notice=print)
    assert Path("tries").read_text() == "x\n" * submit_once.ATTEMPTS
    assert Path("jobs", name, "logs").is_dir(), "an accepted job would need it"


def test_nothing_is_tried_again_while_the_controller_does_not_say_whether_it_has_the_job(
    shim, monkeypatch, name, slurm
):
    shim("squeue", "echo 'squeue: error: slow' >&2; exit 1")
    environ = shim("sbatch", f'{REAL} sbatch "$@" >/dev/null; echo x >>tries; {TIMED_OUT}')
    monkeypatch.setattr(submit_once, "FIND_PAUSES_S", (0.0, 0.0))
    resolved = resolve.resolve(options={"job_name": name, "hold": True}, words=(), job_file=None, environ={})
    with pytest.raises(LostAnswerError, match="does not say whether it has the job"):
        submit.submit(Request(resolved), change=False, environ=environ, notice=print)
    assert len(queued(slurm, name)) == 1


@pytest.mark.parametrize("answer", [TIMED_OUT, "echo Submitted"], ids=["none", "no id"])
def test_the_job_is_found_whatever_the_shell_calls_its_user_and_filters(shim, name, slurm, answer):
    environ = shim("sbatch", f'{REAL} sbatch "$@" >/dev/null; {answer}')
    status, out, err = submitted(name, environ | {"LOGNAME": "nobody", "USER": "nobody", "SQUEUE_USERS": "nobody"})
    assert status == 0, err
    assert out.split() == queued(slurm, name)


def test_two_submissions_at_once_of_one_name_are_one(shim, name, slurm):
    environ = shim("sbatch", f'touch began; while [ ! -e go ]; do sleep 0.1; done; {REAL} exec sbatch "$@"')
    first = started(name, environ)
    wait_for_file("began", first)
    status, out, err = submitted(name, environ)
    Path("go").touch()
    assert (status, out) == (2, "")
    assert f"is being submitted by process {first.pid} on " in err
    assert ended(first)[1].split() == queued(slurm, name)
    assert not list(Path("jobs", name).glob(".submitting*"))


def test_a_refusal_takes_back_nothing_of_another_run(shim, name):
    environ = shim("sbatch", f'touch began; sleep 1; {REAL} exec sbatch "$@"')
    refused = started("refused", environ, "--force", "--partition", "nowhere")
    wait_for_file("began", refused)
    assert submitted(name, environ)[0] == 0
    assert ended(refused)[0] == 3
    assert [path.name for path in Path("jobs").iterdir()] == [name]
    assert Path("jobs", name, "spec.toml").is_file()


def test_ctrl_c_while_sbatch_works_comes_after_the_id(shim, name, slurm):
    environ = shim("sbatch", f'{REAL} sbatch "$@"; touch accepted; sleep 1')
    process = started(name, environ)
    wait_for_file("accepted", process)
    process.send_signal(signal.SIGINT)
    status, out, _ = ended(process)
    assert status == 130
    assert out.split() == queued(slurm, name)
    assert json.loads(Path("jobs", name, "submissions.jsonl").read_text())["job"] == out.strip()


def test_a_job_that_cannot_be_recorded_is_told_all_the_same_and_ends_its_chain(environ, name, slurm):
    Path("jobs", name, "job.sbatch", "in-the-way").mkdir(parents=True)
    status, out, err = submitted(name, environ, "--chain", "2")
    assert status == 1
    assert out.split() == queued(slurm, name)
    assert f"Error: job {out.strip()} is queued, but could not be recorded: " in err


def test_a_dependent_of_the_runs_own_job_is_accepted(environ, name, slurm):
    first = submitted(name, environ)[1].strip()
    assert submitted(name, environ)[0] == 2
    assert submitted(name, environ, "-d", f"afterany:{first}")[0] == 0
    assert len(queued(slurm, name)) == 2


def test_somebody_elses_job_of_the_same_number_is_not_the_runs(environ, name, slurm):
    """Two clusters, or one set up anew, give the same numbers."""
    other = slurm(
        "sbatch", "--parsable", "--hold", f"--job-name={name}", "--output=/dev/null", "--wrap", "true"
    ).strip()
    Path("jobs", name).mkdir(parents=True)
    lines = [{"job": other, "sha256": "0" * 64}, {"time": "no job"}, {"job": None}, {"job": "no number"}]
    Path("jobs", name, "submissions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert submitted(name, environ)[0] == 0


def test_a_program_is_the_same_wherever_it_is_repeated_from(environ, name, slurm, wait_for_job, monkeypatch):
    Path("train.py").write_text("")
    here = Path.cwd()
    for folder, words in (
        (here, ["train.py", "1"]),
        (here / "bin", [str(here / "jobs" / name / "spec.toml")]),
        (here, ["train.py", "1"]),
    ):
        monkeypatch.chdir(folder)
        status, out, err = submitted(name, environ, *words)
        assert status == 0, err
        slurm("scancel", out.strip())
        wait_for_job(out.strip())


def test_bytes_that_no_record_can_hold_are_refused_before_the_queue(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"job-name": "x", "partition": "gpu"}
    resolved = resolve.resolve(options=options, words=("--data", "\udcff"), job_file=None, environ={})
    with pytest.raises(UsageError):
        submit.submit(Request(resolved), change=False, environ={"PATH": "/nowhere"}, notice=print)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_no_start_in_years(shim, name, tmp_path):
    """The sbatch is a stand-in."""
    environ = shim("sbatch", "")
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho 'sbatch: Job 17 to start at 2538-04-12T19:04:34' >&2\n")
    (tmp_path / "train.py").write_text("")
    said = submitted(name, environ, "--dry-run", "--partition=gpu", "train.py")[2]
    assert said == "it starts when the jobs before it end, which have no time limit\n"


def test_a_dry_run_refuses_what_submit_refuses_and_writes_nothing(environ, name, tmp_path):
    Path("train.py").write_text("")
    assert submitted(name, environ, "train.py")[0] == 0
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert submitted(name, environ, "--dry-run", "train.py")[0] == 2
    RunDir(tmp_path / "jobs" / name).attempt("1", "0.0").mkdir(parents=True)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    said = submitted(name, environ, "--dry-run", "--partition=short", "--time=2:00:00", "train.py", "x")[2].splitlines()
    assert "--time 2:00:00: partition short allows at most" in said[0]
    assert "started with another command: 'x' was added" in said[-2]
    assert "belongs to job" in said[-1]
    said = submitted(f"{name}-b", environ, "--dry-run", "--after=99999999", "--time=0", "train.py")[2]
    assert "Slurm does not know job 99999999: this job would not wait for it" in said
    status, out, _ = submitted(f"{name}-b", environ, "--dry-run", "--json", "train.py")
    assert status == 0 and json.loads(out)["jobs"][0]["text"].startswith("#!/bin/bash")
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_refused_value_is_told_before_the_question_of_the_run(environ, name, tmp_path, slurm):
    Path("train.py").write_text("")
    assert submitted(name, environ, "--hold", "train.py")[0] == 0
    RunDir(tmp_path / "jobs" / name).attempt("1", "0.0").mkdir(parents=True)
    slurm("scancel", f"--name={name}")
    status, _, said = submitted(name, environ, "--partition=nosuch", "train.py", "x")
    assert status == 3 and said.startswith("Error: --partition: 'nosuch' does not exist")
    status, _, said = submitted(name, environ, "--nodelist=nosuch", "train.py", "x")
    assert status == 3 and said.startswith("Error: sbatch would refuse the job: ")
    assert "was started with another command" in submitted(name, environ, "train.py", "x")[2]


ASKED = {"job_name": "x", "nodes": 2, "partition": "gpu", "time": "0:50"}
DEPENDENT = ASKED | {"dependency": "afterok:16"}


@pytest.mark.parametrize(
    ("asked", "change", "told"),
    [
        (ASKED, {}, []),
        (ASKED, {"requeue": False}, ["job 17 was accepted with Requeue=0: .* `--chain N` queues N jobs"]),
        (ASKED, {"partition": "gpu2"}, ["with the partition gpu2 where gpu was asked for"]),
        (ASKED, {"limit_s": 30}, ["with the time limit 00:00:30 where 0:50 was asked for"]),
        (ASKED, {"node_count": 1}, ["with the number of nodes 1 where 2 was asked for"]),
        (ASKED, {"partition": "a", "node_count": 4}, ["partition a", "nodes 4"]),
        (ASKED, {"limit_s": None}, ["with the time limit UNLIMITED where 0:50 was asked for"]),
        (ASKED, {"partition": "", "node_count": None}, []),
        ({"job_name": "x", "requeue": False}, {"node_count": 1, "requeue": False, "limit_s": None}, []),
        (DEPENDENT, {"dependency": "afterok:16(unfulfilled)"}, []),
        (ASKED | {"dependency": "singleton"}, {}, []),
        (DEPENDENT, {}, ["job 17 waits for no other job: Slurm does not know those of afterok:16, or they have ended"]),
    ],
)
def test_what_a_site_has_changed_is_told(asked, change, told):
    """Slurm rounds 50 s up to a minute; that is no change. It accepts the number of a job that never was (22.05)."""
    shown = {"requeue": True, "partition": "gpu", "limit_s": 60, "node_count": 2} | change
    job = JobInfo(job_id="17", name="x", state="PENDING", source="scontrol", restarts=0, **shown)
    lines = list(notices.site_changes(JobSpec(**asked), job))
    assert len(lines) == len(told)
    assert all(re.search(words, line) for words, line in zip(told, lines, strict=True))


def test_what_sbatch_refuses_in_any_case_is_not_to_be_forced(environ, name):
    said = submitted(name, environ, "--partition", "gpus")[2]
    assert said == "Error: --partition: 'gpus' does not exist; did you mean 'gpu'?\n"
    assert "; --force submits" in submitted(name, environ, "--nodes", "99")[2]


def test_without_a_command_it_is_said_that_the_bundled_example_trains(environ, name):
    assert submitted(name, environ, "--hold")[2].startswith("no COMMAND was given: the bundled example trains\n")
    assert "bundled" not in submitted(f"{name}-b", environ, "--hold", "--dry-run", "--epochs", "3")[2]


def test_a_script_for_one_gpu_is_submitted_with_a_word_about_it(environ, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text("import torch\n")
    words = ("--hold", "--ntasks-per-node=2", "one.py")
    assert "one.py makes no process group: each of the 2 ranks does the whole" in submitted(name, environ, *words)[2]
    words = ("--hold", "--ntasks-per-node=1", "one.py")
    assert "process group" not in submitted(f"{name}-b", environ, *words)[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodelist", "n77"), "allocation failure: Invalid node name specified"),
        (("--sbatch", "mail-user"), "option '--mail-user' requires an argument"),
        (("--sbatch", "begin=tomorow"), "Invalid time specification (pos=0): tomorow; Invalid --begin specification"),
        (("--nodelist", "n1,n2", "-N", "1"), "invalid number of nodes (-N 2-1)"),
    ],
    ids=range(4),
)
def test_what_sbatch_refuses_is_told_in_its_words(environ, name, words, said):
    general = "correct it, or leave it out: `sbatch --help` lists the options"
    hint = "`slurmddp cluster` shows what there is" if "node" in said else general
    hint = f"; {hint}; --force submits without asking this first"
    assert submitted(name, environ, *words) == (3, "", f"Error: sbatch would refuse the job: {said}{hint}\n")


def test_the_id_of_a_queued_job_is_told_where_stdout_cannot_be_written(environ, name, slurm):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "slurmddp", "submit", "--name", name]
        done = subprocess.run(command, env=environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert f"(job {queued(slurm, name)[0]})\n" in done.stderr


def test_a_site_that_takes_requeue_away_is_told_of_and_the_job_is_submitted(shim, name):
    environ = shim("scontrol", f'{REAL} scontrol "$@" | sed "s/Requeue=1/Requeue=0/"')
    status, out, err = submitted(name, environ)
    assert status == 0 and out.strip().isdecimal()
    assert f"job {out.strip()} was accepted with Requeue=0" in err


def test_a_job_that_may_wait_for_ever_is_told_of_at_once(name, slurm_env, tmp_path, monkeypatch):
    """Here a partition that has a shorter time limit; with slurmdbd, the limits of a QOS are known as early."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "slurmddp", "submit", "--force", "-p", "short", "-t", "2:00:00", "--name", name]
    done = subprocess.run(command, env=slurm_env, capture_output=True, text=True, check=False)
    job_id, told = done.stdout.strip(), []
    assert done.returncode == 0, done.stderr
    until(lambda: queries.show(job_id, slurm_env)[0].reason == "PartitionTimeLimit", pause_s=ASK_SLURM_S)
    notices.report_changes(JobSpec(job_name=name, partition="short"), JobId(job_id), None, slurm_env, told.append)
    assert f"`slurmddp cancel {job_id}` and submit again" in told[-1]
    assert told[-1].startswith(f"job {job_id} waits (PartitionTimeLimit)")


def test_the_log_of_an_earlier_job_of_the_same_number_is_set_aside(tmp_path, monkeypatch):
    run = RunDir(tmp_path / "run")
    run.create()
    log = run.batch_log("17")
    log.write_text("old")
    os.utime(log, (1000, 1000))
    submit_once.set_aside(log, before=1000)
    assert log.exists(), "as old as that it may be the job's own"
    monkeypatch.setattr(submit_once, "sbatch", lambda *_, **__: JobId("17"))
    request = Request(Resolved(JobSpec(job_name="x"), {}))
    plain = {"script": Script(b""), "spec": b"", "environ": {}, "notice": lambda _: None}
    assert submit_once.Handover(run=run, request=request, **plain).submit().unrecorded == ""
    assert not log.exists() and log.with_name("17.out.before-1000000000000").read_text() == "old"


KILLED = """
import os, tempfile
from slurmddp.cli import main

make = tempfile.mkstemp

def mkstemp(**where):
    made = make(**where)
    if where["prefix"].startswith(".job.sbatch"):
        os.kill(os.getpid(), 9)
    return made

tempfile.mkstemp = mkstemp
main()
"""
"""`slurmddp`, killed while it writes the script of an accepted job."""


def test_what_a_submission_left_that_was_killed_is_removed_by_the_next(name, slurm, slurm_env, tmp_path):
    command = [sys.executable, "-c", KILLED, "submit", "--hold", "--name", name]
    assert subprocess.run(command, env=slurm_env, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    run = RunDir(tmp_path / "jobs" / name)
    assert len(list(run.path.glob(".job.sbatch.*"))) == 1
    (run.codes / ".0123.part" / "pkg").mkdir(parents=True)
    (run.codes / "4567").mkdir()
    slurm("scancel", queued(slurm, name)[0])
    command = [sys.executable, "-m", "slurmddp", "submit", "--hold", "--name", name]
    subprocess.run(command, env=slurm_env, cwd=tmp_path, check=True)
    assert list(run.path.glob(".*")) == [run.path / ".gitignore"] and run.job_script.is_file()
    assert list(run.codes.iterdir()) == [run.codes / "4567"]


def test_a_controller_that_does_not_show_the_job_fails_nothing(shim, name):
    slow = "echo 'scontrol: error: slow' >&2; exit 1"
    environ = shim("scontrol", f'case "$*" in *" show job "*) {slow} ;; *) {REAL} exec scontrol "$@" ;; esac')
    assert submitted(name, environ)[0] == 0


@pytest.mark.usefixtures("slurm_programs")
def test_an_ordinary_jobs_requeue_wins_where_the_cluster_has_it_off(tmp_path, monkeypatch):
    """JobRequeue=0 is only a default; with it a job that does not ask is not requeued."""
    monkeypatch.chdir(tmp_path)
    text = configuration.slurm_conf
    monkeypatch.setattr(configuration, "slurm_conf", lambda *a: text(*a).replace("JobRequeue=1", "JobRequeue=0"))
    running = room.up(room.Plan(name=f"norequeue-{os.getpid()}", nodes=1, gpus_per_node=0), die_with_parent=True)
    environ = {**os.environ, **running.environment()}
    silent = ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"]
    done = subprocess.run(silent, env=environ, capture_output=True, text=True, check=True)
    assert not queries.show(done.stdout.strip(), environ)[0].requeue
    status, out, err = submitted("asks", environ)
    assert (status, queries.show(out.strip(), environ)[0].requeue) == (0, True)
    assert "Requeue" not in err
    running.down()


def test_a_chain_waits_one_behind_the_other_and_the_run_is_theirs(environ, name, slurm):
    status, out, err = submitted(name, environ, "--chain", "2", "--json")
    (result,) = json.loads(out)["jobs"]
    first = result["job_id"]
    records = [json.loads(line) for line in Path("jobs", name, "submissions.jsonl").read_text().splitlines()]
    numbers = [record["job"] for record in records]
    assert status == 0 and numbers[0] == first and len(numbers) == 3
    assert [record["after"] for record in records] == [None, *numbers[:2]] and result["chain"] == numbers[1:]
    assert f"after it: {numbers[1]} {numbers[2]}\n" in err
    assert all(Path("jobs", name, f"{number}.sbatch").is_file() for number in numbers)
    waits = dict(line.split() for line in slurm("squeue", "-h", "-n", name, "-o", "%i %E").splitlines())
    assert [waits[number].partition("(")[0] for number in numbers[1:]] == [f"afterany:{job}" for job in numbers[:2]]
    slurm("scancel", first)
    status, out, err = submitted(name, environ)
    assert (status, out) == (2, "") and "belongs to job" in err


def test_a_chain_that_is_refused_leaves_what_was_accepted_and_says_so(shim, name, slurm):
    environ = shim(
        "sbatch",
        f'case "$*" in *afterany*) echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1;; esac; '
        f'{REAL} exec sbatch "$@"',
    )
    status, out, err = submitted(name, environ, "--chain", "2")
    assert status == 1
    assert out.split() == queued(slurm, name)
    assert f"Error: job {out.strip()} is queued, but only 0 of 2 jobs after it: " in err
    assert "QOSMaxSubmitJobPerUserLimit" in err


def test_a_terminal_that_is_gone_costs_no_job_its_folder(environ, name, slurm):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "slurmddp", "submit", "--hold", "--name", name]
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.stdout.split() == queued(slurm, name)
    assert Path("jobs", name, "logs").is_dir()


def test_a_warning_of_sbatch_is_passed_on_and_a_git_that_cannot_be_asked_is_no_obstacle(shim, name, slurm):
    environ = shim("sbatch", f'echo "sbatch: warning: the project runs out of hours" >&2; {REAL} exec sbatch "$@"')
    Path("bin", "git").write_text("")
    status, out, err = submitted(name, environ)
    assert (status, out.split()) == (0, queued(slurm, name)), err
    assert "warning: the project runs out of hours" in err


def test_ctrl_c_before_sbatch_submits_nothing(shim, name, slurm):
    environ = shim("sinfo", f'touch began; sleep 2; {REAL} exec sinfo "$@"')
    process = started(name, environ)
    wait_for_file("began", process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[:2] == (130, "")
    assert queued(slurm, name) == []


def test_no_ranks_are_guessed_where_the_cluster_does_not_say_what_a_node_has(shim, name, slurm):
    environ = shim("sinfo", "echo 'sinfo: error: Socket timed out' >&2; exit 1")
    status, out, err = submitted(name, environ)
    assert (status, out) == (3, "")
    assert err == (
        "Error: what a node has is not known (sinfo: Socket timed out); give --gpus-per-node or --ntasks-per-node\n"
    )
    assert submitted(name, environ, "--ntasks-per-node=1")[0] == 0
    assert len(queued(slurm, name)) == 1


def test_a_job_waits_for_nodes_that_are_drained(environ, name, slurm):
    slurm("scontrol", "update", "NodeName=n[1-2]", "State=DRAIN", "Reason=test")
    try:
        status, out, err = submitted(name, environ)
    finally:
        slurm("scontrol", "update", "NodeName=n[1-2]", "State=RESUME")
    assert (status, out.split()) == (0, queued(slurm, name)), err
    assert "the job waits for nodes that are down or drained now" in err
    assert "--gpus-per-node=8" in Path("jobs", name, "job.sbatch").read_text()


def test_a_refused_look_leaves_no_folder(environ):
    """`doctor --in-job` makes a folder that the nodes would see, before Slurm is asked."""
    before = sorted(Path().iterdir())
    command = [sys.executable, "-m", "slurmddp", "doctor", "--in-job", "--gpus-per-node", "9"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.touch, "spec.toml is empty"),
        (os.mkfifo, "spec.toml is not a regular file"),
        (lambda path: path.write_bytes(b"\xff"), "spec.toml, line 1: not UTF-8 text"),
    ],
)
def test_a_damaged_record_is_named_with_its_run(damage, said, tmp_path):
    run = RunDir(tmp_path / "dmg")
    run.create()
    damage(run.spec)
    with pytest.raises(UsageError, match=f"{re.escape(said)}; it is the record of run dmg: choose another --name$"):
        find_change(
            run, resolve.resolve(options={}, words=("x.py",), job_file=None, environ={}, worker={}, configuration=())
        )


def test_the_folder_of_a_scripts_output_is_made_as_slurm_makes_none(environ, tmp_path, slurm):
    script = "#!/bin/bash\n#SBATCH -J {0}\n#SBATCH -o {1}\n#SBATCH -e {0}/err/%j\nsrun python train.py\n"
    words = [sys.executable, "-m", "slurmddp"]
    for name, output in (("own", "%x/logs/%x-%j.log"), ("per-job", "out-%j/log")):
        (tmp_path / f"{name}.sbatch").write_text(script.format(name, output))
        found = subprocess.run(
            [*words, "doctor", f"{name}.sbatch"], check=False, env=environ, capture_output=True, text=True
        )
        assert ("`slurmddp submit` makes it" if name == "own" else "gets its name in the job") in found.stdout
        assert not (tmp_path / name).exists()
        done = subprocess.run(
            [*words, "submit", "--hold", f"{name}.sbatch"], check=False, env=environ, capture_output=True, text=True
        )
        slurm("scancel", done.stdout.strip())
        warned = "the folder of the output, out-%j, is not there; make it, or the job fails at its start"
        assert (warned in done.stderr) == (name == "per-job"), done.stderr
        assert (tmp_path / name / "err").is_dir()
    assert (tmp_path / "own" / "logs").is_dir()
