"""Every view tells the same end of the same job: real ends of jobs on a real Slurm, all at once."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from polling import until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.cli import group
from slurmddp.cli.status_format import show_state
from slurmddp.cli.submit import _wait
from slurmddp.cli.sweep import describe_state
from slurmddp.cli.watch.sources import query
from slurmddp.outcome import MEANINGS, Kind
from slurmddp.report.collect import collect_report, make_json
from slurmddp.report.html import CLASSES, render_page
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobId
from slurmddp.submission.submit_once import Submitted
from slurmddp.submission.sweep import Result

SLURMDDP = Path(sys.executable).parent / "slurmddp"
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
WAIT = ("--no-python", "sh", "-c", "touch $SLURMDDP_RUN_DIR/ready; exec sleep 600")
DEAF = ("--no-python", "sh", "-c", "trap : USR2 TERM; touch $SLURMDDP_RUN_DIR/ready; while :; do sleep 1; done")
"""Catches the notices, and goes on."""
FIRST_WAITS = (*WAIT[:3], f'[ "$SLURMDDP_RESTARTS" = 0 ] || exit 0; {WAIT[3]}')
"""Waits in its first attempt, and is done in the next."""
NODES = "n1", "n2", "n3", "n4", "n5", "n6"
FIRST = f"--nodelist={NODES[0]}"
SMALL = ("--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1")
LABEL = re.compile(r'<span class="badge (\w*)">\S+ ([^<]*)</span>')
ATTEMPT_LABEL = re.compile(r'<div class="attempt-head"><b>[^<]*</b><span class="(\w+)">([^<]*)</span>')
WELL = "it ended well"
PAUSE_S = 0.5
"""Between two questions to Slurm: nothing that is awaited here is fast."""

Act = Iterator[Callable[[], object]]
"""What happens to a job: before each next step a condition must be true."""


@dataclass
class Job:
    """A job of one end, and what the views said of it."""

    cluster: "Cluster"
    name: str
    job_id: str = ""
    process: subprocess.Popen[str] | None = None
    """A `submit --wait` that goes on until the job has ended."""
    messages: str = ""
    """What it has said."""

    @property
    def run(self) -> RunDir:
        return RunDir(self.cluster.folder / "jobs" / self.name)

    def is_ready(self) -> bool:
        return (self.run.path / "ready").exists()

    def has_ended(self) -> bool:
        return self.state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

    def is_pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def state(self) -> str:
        return self.cluster.states.get(self.job_id, "PENDING")

    def update(self, key: str, value: str) -> None:
        self.cluster.slurm("scontrol", "update", f"JobId={self.job_id}", f"{key}={value}")


@dataclass
class Cluster:
    """The sandbox, and the folder in which the jobs were submitted."""

    sandbox: slurm_sandbox.Sandbox
    folder: Path
    states: dict[str, str] = field(default_factory=dict)
    """Slurm's state of each job, as last asked."""

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **self.sandbox.environment(), "OMP_NUM_THREADS": "1"}

    def slurm(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def slurmddp(self, *words: str) -> tuple[int, str, str]:
        """Return the exit status of a command, what it printed, and its messages."""
        done = CliRunner().invoke(group, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        return done.exit_code, done.stdout, done.stderr

    def ask(self) -> None:
        rows = self.slurm("squeue", "--noheader", "--array", "--states=all", "--format=%i %T").splitlines()
        self.states |= dict(row.split() for row in rows)


def cancel(job: Job) -> Act:
    yield job.is_ready
    job.cluster.slurm("scancel", job.job_id)


def cancel_pending(job: Job) -> Act:
    yield job.is_pending
    job.cluster.slurm("scancel", job.job_id)


def preempt(job: Job) -> Act:
    yield job.is_ready
    job.cluster.sandbox.preempt(job.job_id)


def kill_node(job: Job) -> Act:
    yield job.is_ready
    job.cluster.sandbox.kill(re.search(r"BatchHost=(\w+)", job.cluster.slurm("scontrol", "show", "job", job.job_id))[1])


def reach_limit(job: Job) -> Act:
    """Let the time limit come, which Slurm looks at each half minute."""
    yield job.is_ready
    job.update("EndTime", "now+5")


def near_limit(job: Job) -> Act:
    """Let Slurm give the notice before the time limit; the next attempt has time again."""
    yield job.is_ready
    job.update("EndTime", "now+90")
    yield lambda: job.is_pending() or job.has_ended()
    if job.is_pending():
        job.update("TimeLimit", "30")


def end_script(job: Job) -> Act:
    yield job.is_ready
    job.cluster.slurm("scancel", "--batch", "--signal=TERM", job.job_id)


def submit_twice(job: Job) -> Act:
    """Give the script to sbatch again while the first job runs: the second finds the run taken."""
    yield job.is_ready
    first = job.job_id
    script = str(job.run.path / "job.sbatch")
    job.job_id = job.cluster.slurm("sbatch", "--parsable", FIRST, script).strip()
    yield job.has_ended
    job.cluster.slurm("scancel", first)
    yield lambda: job.cluster.states[first] == "CANCELLED"


@dataclass(frozen=True)
class End:
    """An end, and what it must be called."""

    kind: Kind
    cause: str
    """By `diagnose`."""
    program: tuple[str, ...] = WAIT
    options: tuple[str, ...] = (FIRST,)
    act: Callable[[Job], Act] | None = None
    waits: bool = False
    """Whether a `submit --wait` in a process of its own submits it."""
    own_word: str = ""
    """Slurm's own word, which newer versions have for it."""


ENDS = {
    "lost": End(Kind.NODE_LOST, "node-lost", options=("--no-requeue", f"--nodelist={NODES[3]}"), act=kill_node),
    "lost-back": End(
        Kind.DONE, "none", program=FIRST_WAITS, options=(f"--exclude={','.join(NODES[:4])}",), act=kill_node
    ),
    "limit": End(
        Kind.TIME_LIMIT, "time-limit", program=DEAF, options=(FIRST, "--no-requeue", "--time=30"), act=reach_limit
    ),
    "limit-back": End(Kind.DONE, "none", program=FIRST_WAITS, options=(FIRST, "--time=30"), act=near_limit),
    "limit-stop": End(Kind.STOPPED, "time-limit", options=(FIRST, "--time=30", "--no-requeue"), act=near_limit),
    "preempted-back": End(
        Kind.DONE, "none", program=FIRST_WAITS, options=("--partition=low", f"--nodelist={NODES[1]}"), act=preempt
    ),
    "preempted": End(
        Kind.STOPPED,
        "preempted",
        options=("--partition=low", f"--nodelist={NODES[2]}", "--no-requeue"),
        act=preempt,
        own_word="PREEMPTED",
    ),
    "done": End(Kind.DONE, "none", program=("--no-python", "true"), waits=True),
    "exception": End(Kind.FAILED, "exception", program=("raises.py",), waits=True),
    "exit": End(Kind.FAILED, "exit-status", program=("exits.py",)),
    "killed": End(Kind.CRASHED, "rank-killed", program=("dies.py",), options=(FIRST, "--max-restarts=0")),
    "killed-twice": End(Kind.CRASHED, "rank-killed", program=("dies.py",), options=(FIRST, "--max-restarts=1")),
    "cancelled-pending": End(Kind.CANCELLED, "cancelled", options=("--hold",), act=cancel_pending),
    "cancelled": End(Kind.CANCELLED, "cancelled", act=cancel),
    "fenced": End(Kind.FENCED, "run-taken", act=submit_twice),
    "set-up": End(Kind.FAILED, "set-up-failed", options=(FIRST, "--setup=false")),
    "never": End(Kind.PENDING, "waiting", options=("--force", "--partition=short", "--time=60")),
    "script": End(Kind.KILLED, "script-killed", act=end_script),
}
SWEPT = {"raise": Kind.FAILED, "return": Kind.DONE, "kill": Kind.CRASHED, "wait": Kind.CANCELLED}
"""What the settings of a sweep do, and how they end."""
PROGRAMS = {
    "raises.py": "raise ValueError('boo')",
    "exits.py": "import sys; sys.exit(3)",
    "dies.py": "import os; os.kill(os.getpid(), 9)",
    "swept.py": """
import os, pathlib, sys, time
if sys.argv[1] == "raise":
    raise ValueError("boo")
if sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
if sys.argv[1] == "wait":
    pathlib.Path(os.environ["SLURMDDP_RUN_DIR"], "ready").touch()
    time.sleep(600)
""",
}


@pytest.fixture(scope="module")
def cluster(slurm_programs, tmp_path_factory):
    """Return a cluster whose nodes may be killed, with this process in an empty folder, pointed at it."""
    del slurm_programs
    plan = slurm_sandbox.Plan(
        name=f"ends-{os.getpid()}",
        nodes=len(NODES),
        cpus_per_node=32,
        gpus_per_node=0,
        slurm_conf=("MinJobAge=3600",),  # on a busy machine the views are asked for longer than Slurm's five minutes
    )
    running = slurm_sandbox.up(plan, die_with_parent=True)
    folder = tmp_path_factory.mktemp("ends")
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"{text}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for key, value in {**running.environment(), "OMP_NUM_THREADS": "1", "COLUMNS": "400"}.items():
            patch.setenv(key, value)
        yield Cluster(running, folder)
    running.down()


@pytest.fixture(scope="module")
def jobs(cluster):
    """Return the jobs by the names of their ends, and the settings of a sweep, when all have ended."""
    found = {name: submit(cluster, name, end) for name, end in ENDS.items()}
    swept = submit_sweep(cluster)
    acts = [end.act(found[name]) for name, end in ENDS.items() if end.act]
    acts.append(cancel(swept["wait"]))
    waiting = [(act, next(act)) for act in acts]
    open_ends = [job for name, job in found.items() if ENDS[name].kind.final] + list(swept.values())

    def go_on() -> bool:
        cluster.ask()
        for act, condition in list(waiting):
            if condition():
                waiting.remove((act, condition))
                with suppress(StopIteration):
                    waiting.append((act, next(act)))
        return not waiting and all(job.has_ended() for job in open_ends)

    until(go_on, 1000, lambda: {job.name: job.state for job in open_ends if not job.has_ended()}, pause_s=PAUSE_S)
    for job in found.values():
        job.messages = job.process.communicate(timeout=300)[1] if job.process else ""
    return found | {f"swept-{name}": job for name, job in swept.items()}


def submit(cluster: Cluster, name: str, end: End) -> Job:
    words = ["submit", *SMALL, f"--name={name}", *end.options, *end.program]
    job = Job(cluster, name)
    if end.waits:
        words.insert(1, "--wait")
        pipe = subprocess.PIPE
        job.process = subprocess.Popen([SLURMDDP, *words], env=cluster.environ, stdout=pipe, stderr=pipe, text=True)
        job.job_id = job.process.stdout.readline().strip()
    else:
        status, said, messages = cluster.slurmddp(*words)
        assert status == 0, messages
        job.job_id = said.strip()
    return job


def submit_sweep(cluster: Cluster) -> dict[str, Job]:
    how = f"--set=how={','.join(SWEPT)}"
    words = ["sweep", *SMALL, FIRST, "--name=swept", "--max-restarts=0", how]
    status, said, messages = cluster.slurmddp(*words, "swept.py", "{how}")
    assert status == 0, messages
    return {name: Job(cluster, f"swept/how={name}", f"{said.strip()}_{number}") for number, name in enumerate(SWEPT)}


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the views said of one job."""

    status: str
    """The word after `is`."""
    record: dict
    """`status --json` of the job alone."""
    among_all: dict
    """`status --json` of all jobs at once, of which scontrol is not asked."""
    errors: tuple[str, str]
    """`logs --errors`: what it printed, and its messages."""
    followed: str
    """`logs -f`: the last word; empty of a job that has not ended."""
    watched: tuple[str, str]
    """The word in `watch`, and its colour."""
    report: dict
    """What `report --json` prints."""
    badge: tuple[str, str]
    """On the report's page: the class and the label of the run, and of its last attempt."""
    attempt: tuple[str, str]
    swept: str
    """Its state in the results of a sweep."""
    diagnosis: dict
    failures: set[str]
    """The causes that `diagnose --all` has of the job."""
    waited: tuple[int, dict] | None
    """`submit --wait --json`: the exit status, and the result; None of a job that has not ended."""


@pytest.fixture(scope="module")
def told(cluster, jobs):
    """Return what the views say of each job, by the names of the ends."""
    together = json.loads(cluster.slurmddp("status", "--json", *(job.job_id for job in jobs.values()))[1])["jobs"]
    records = {record["job_id"]: record for record in together}
    failures: dict[str, set[str]] = {}
    for failure in json.loads(cluster.slurmddp("diagnose", "--all", "--json")[1])["failures"]:
        failures.setdefault(failure["job_id"], set()).add(failure["diagnosis"]["cause"])
    return {
        name: ask_views(cluster, job, records[job.job_id], failures.get(job.job_id, set()))
        for name, job in jobs.items()
    }


def ask_views(cluster: Cluster, job: Job, among_all: dict, failures: set[str]) -> Told:
    job_id, has_ended = job.job_id, job.has_ended()
    (first, *_) = cluster.slurmddp("status", job_id)[1].splitlines()
    (record,) = json.loads(cluster.slurmddp("status", "--json", job_id)[1])["jobs"]
    (row,) = (item for item in query((job_id,), "jobs", os.environ) if item.job_id == job_id)
    report = collect_report(job.run, os.environ, now=time.time())
    page = render_page(report).decode()
    return Told(
        status=first.rpartition(" is ")[2],
        record=record,
        among_all=among_all,
        errors=cluster.slurmddp("logs", "--errors", job_id)[1:],
        followed=cluster.slurmddp("logs", "-f", job_id)[2].split()[-1] if has_ended else "",
        watched=show_state(row),
        report=make_json(report),
        badge=LABEL.search(page).groups(),
        attempt=[("", ""), *ATTEMPT_LABEL.findall(page)][-1],
        swept=describe_state(Result(values={}, run=job.run, outcome=row.outcome, step=0, total=0, metrics={})),
        diagnosis=json.loads(cluster.slurmddp("diagnose", "--json", job_id)[1])["diagnoses"][0],
        failures=failures,
        waited=wait(job) if has_ended else None,
    )


def wait(job: Job) -> tuple[int, dict]:
    """Return how `submit --wait --json` ends of a job that has ended."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        status = _wait(Submitted(job_id=JobId(job.job_id), run=job.run), job.run, job.job_id, show=False, as_json=True)
    return status, json.loads(said.getvalue())["jobs"][0]


@pytest.mark.parametrize("name", [*ENDS, *(f"swept-{how}" for how in SWEPT)])
def test_every_view_tells_the_same_end(told, name):
    """The words, colours and exit statuses are those of the one table."""
    said = told[name]
    kind = ENDS[name].kind if name in ENDS else SWEPT[name.removeprefix("swept-")]
    means, word = MEANINGS[kind], said.record["state"]
    assert word in {means.word, *([ENDS[name].own_word] if name in ENDS else [])}
    for record in (said.record, said.among_all):
        assert (record["outcome"], record["state"], record["phase"]) == (kind, word, means.phase)
    assert said.status == word and said.watched == (word, means.colour)
    assert said.report["outcome"] == kind and said.badge == (CLASSES.get(means.colour, "soft"), means.label)
    assert said.swept == means.label
    assert said.diagnosis["state"] == word
    assert (said.diagnosis["what"] == WELL) == (kind is Kind.DONE)
    assert bool(said.failures) == means.failed
    if kind.final:
        assert said.followed == word
        status, result = said.waited
        assert (status, result["outcome"], result["state"]) == (means.wait_status, kind, word)
        assert (result["diagnosis"] is None) == (kind is Kind.DONE)
    if not said.errors[0]:
        assert ("to wait for more" in said.errors[1]) == (not kind.final)


@pytest.mark.parametrize("name", ENDS)
def test_the_cause_is_that_of_the_end(told, name):
    said, cause = told[name], ENDS[name].cause
    assert said.diagnosis["cause"] == cause
    assert said.failures in (set(), {cause})
    assert not said.waited or (said.waited[1]["diagnosis"] or {"cause": "none"})["cause"] == cause


def test_submit_waits_with_the_exit_status_of_the_end(jobs):
    for name, end in ENDS.items():
        if jobs[name].process:
            assert jobs[name].process.returncode == MEANINGS[end.kind].wait_status, jobs[name].messages
            assert f"job {jobs[name].job_id} is {MEANINGS[end.kind].word}" in jobs[name].messages


def test_the_results_of_a_sweep_tell_the_end_of_each_setting(jobs, cluster):
    del jobs
    found = json.loads(cluster.slurmddp("sweep", "results", "swept", "--json")[1])["results"]
    assert {one["settings"]["how"]: one["outcome"] for one in found} == SWEPT
    rows = cluster.slurmddp("sweep", "results", "swept")[1].splitlines()[1:]
    assert {row.split()[0]: row.split()[1] for row in rows} == {
        how: MEANINGS[kind].label for how, kind in SWEPT.items()
    }
