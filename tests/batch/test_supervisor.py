"""What the supervisor does, branch by branch; what only a real Slurm can show is in tests/test_batch_script.py.

Slurm, the clock and the ranks are stand-ins, so each test takes milliseconds.
"""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurmddp import variables
from slurmddp.batch import attempt as attempts
from slurmddp.batch.attempt import Job
from slurmddp.batch.supervisor import Supervisor
from slurmddp.errors import ClusterError
from slurmddp.runs import node_store, ownership
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.runs.node_evidence import PROOF, NodeEvidence
from slurmddp.runs.submissions import submissions
from slurmddp.slurm.client import RefusedError
from slurmddp.slurm.hostlist import names_in
from slurmddp.slurm.job_info import JobInfo
from slurmddp.supervisor_options import Options
from slurmddp.watchdog import policy as watchdog_policy
from slurmddp.watchdog.beats import seal
from slurmddp.watchdog.policy import Beat

JOB = JobInfo(job_id="17", state="RUNNING", source="scontrol", restarts=0, requeue=True, batch_host="n1", elapsed_s=0)


def add_checkpoint(run: RunDir, step: int) -> None:
    """Leave a whole checkpoint in the run's folder."""
    folder = run.checkpoints / f"step-{step:09d}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()


class KilledError(Exception):
    """Slurm has ended the batch script, as after a requeue."""


@dataclass
class FakeSlurm:
    """Answers for one job; what it is told to do is in `orders`."""

    answers: list[JobInfo | Exception | None] = field(default_factory=list)
    """The next answers about the job; then `job` for ever."""
    info: JobInfo | None = JOB
    others: dict[str, list[JobInfo | Exception | None]] = field(default_factory=dict)
    checks: dict[str, tuple[list[dict], str]] = field(default_factory=dict)
    """What the check of a node prints, and its error; else it is well."""
    checked: list[list[str]] = field(default_factory=list)
    lost: tuple[str, ...] = ()
    requeues: list[Exception] = field(default_factory=list)
    """Refusals of the next requeues."""
    excludes: list[Exception] = field(default_factory=list)
    unreachable: tuple[str, ...] = ()
    """Nodes that no step can be started on."""
    orders: list[tuple[str | int, ...]] = field(default_factory=list)
    addresses: Mapping[str, str] = field(default_factory=dict)

    def job(self, job_id: str) -> JobInfo | None:
        if job_id != "17":
            return self._said(self.others[job_id].pop(0))
        return self._said(self.answers.pop(0) if self.answers else self.info)

    @staticmethod
    def _said(answer: JobInfo | Exception | None) -> JobInfo | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def requeue(self, job_id: str) -> None:
        self.orders.append(("requeue", job_id))
        if self.requeues:
            raise self.requeues.pop(0)

    def update(self, job_id: str, key: str, value: str) -> None:
        self.orders.append({"ExcNodeList": ("exclude", job_id, value), "Requeue": ("requeue is", job_id, value)}[key])
        if self.excludes:
            raise self.excludes.pop(0)

    def partition_nodes(self, partition: str) -> tuple[str, ...]:
        assert partition == "gpu"
        return tuple(f"n{number}" for number in range(1, 9))

    def release_dependents(self, job_id: str) -> list[str]:
        self.orders.append(("release", job_id))
        return ["18"]

    def lost_nodes(self, host_list: str) -> tuple[str, ...]:
        return tuple(node for node in self.lost if node in names_in(host_list))

    def address(self, node: str) -> str:
        return self.addresses.get(node, "")

    def send_signal(self, target: str, signal: str) -> None:
        self.orders.append((signal, target))

    def look(
        self, number: int, nodes: Sequence[str], words: Sequence[str], *_, **__
    ) -> Iterator[tuple[str, list[dict], str]]:
        """What a healthy rank of each node would say, and what `checks` has for a node that is checked."""
        if words[-2] == "slurmddp.runtime.health.facts":
            self.checked.append([*nodes])
            yield from ((node, *self.checks.get(node, ([{"python": "3"}], ""))) for node in nodes)
            return
        assert (number, list(words[-3:])) == (17, ["slurmddp.watchdog.look", "17", f"{words[-1]}"])
        for node in nodes:
            rank = int(node[1:]) - 1
            if node in self.unreachable:
                yield node, [], "no answer"
                continue
            yield node, [{"rank": rank, "host": node, "state": "S", "cpu_s": 0.0, "stack": None}], ""

    def script_digest(self, job_id: str) -> str | None:
        return f"digest of {job_id}"


@dataclass
class FakeClock:
    """A clock that a sleep moves; Slurm's KILL comes in the long sleep after a requeue."""

    now: float = 1000.0
    set_back_s: float = 0.0
    """By how much the wall clock is set back in the first sleep."""
    slept: list[float] = field(default_factory=list)
    killed_after: float | None = 60.0

    def time(self) -> float:
        return self.now - self.set_back_s * bool(self.slept)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if seconds == self.killed_after:
            raise KilledError


@dataclass
class Case:
    """A job under supervision."""

    path: Path
    options: Options = field(default_factory=Options)
    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    clock: FakeClock = field(default_factory=FakeClock)
    environ: dict[str, str] = field(default_factory=dict)
    attempts: list[Callable[["Case", Path], int]] = field(default_factory=list)
    """What each start of the ranks does in its folder; returns the launcher's status."""
    environments: list[Mapping[str, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    finished_on: list[str] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    """The nodes on which guards were started."""
    hosts: tuple[str, ...] = ("n1", "n2")
    restarts: int = 0
    world_size: int = 2
    ranks_per_node: int = 1

    @property
    def run(self) -> RunDir:
        return RunDir(self.path)

    def supervise(self) -> int | None:
        """Return the batch script's status; None where Slurm has ended it."""
        self.run.logs.mkdir(parents=True, exist_ok=True)
        try:
            return self._supervisor().run()
        except KilledError:
            return None

    def _supervisor(self) -> Supervisor:
        job = Job(
            cluster="c",
            job_id="17",
            number=17,
            restarts=self.restarts,
            host="n1",
            host_list=f"n[1-{len(self.hosts)}]",
            hosts=self.hosts,
            head="n1",
            world_size=self.world_size,
            ranks_per_node=self.ranks_per_node,
            run=self.run,
        )
        return Supervisor(
            options=self.options,
            job=job,
            environ=self.environ,
            slurm=self.slurm,
            launch=self._launch,
            finish=self._finish,
            clock=self.clock,
            say=self.log.append,
            log_size=lambda: len(self.log),
            judge_nodes=self.judged.append,
            guard=self.guards.append,
        )

    def _launch(self, environ: Mapping[str, str]) -> int:
        self.environments.append(environ)
        return self.attempts.pop(0)(self, Path(environ[variables.ATTEMPT_DIR]))

    def _finish(self, environ: Mapping[str, str]) -> None:
        self.finished.append(environ[variables.STATUS])
        self.finished_on.append(environ.get(variables.HOSTS, ""))

    def events(self, *kinds: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if not kinds or event["event"] in kinds]

    def decisions(self) -> list[str]:
        return [event["event"] for event in self.events()]

    def asked(self, **changes) -> None:
        """Let Slurm say something else of the job from here on."""
        self.slurm.info = (self.slurm.info or JOB)._replace(**changes)


def says(text: str, rank: int = 0, status: int = 1, *, lasts_s: float = 1.0) -> Callable[[Case, Path], int]:
    """Return ranks of which one leaves a record."""

    def start(case: Case, folder: Path) -> int:
        case.clock.now += lasts_s
        (folder / f"{rank}.end").write_text(text + "\n")
        return status

    return start


def silent(status: int, *, lasts_s: float = 1.0) -> Callable[[Case, Path], int]:
    """Return ranks that leave no record."""

    def start(case: Case, folder: Path) -> int:
        del folder
        case.clock.now += lasts_s
        return status

    return start


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path / "jobs" / "x")


DONE, STOPPED, LOST, FAILED = (
    "0 done",
    "75 rank 0 on n1: stop signal received",
    "76 rank 1 on n2: lost rank 0",
    "77 rank 1 on n2: x",
)
LAST = {"DONE": DONE, "STOPPED": STOPPED}


@pytest.fixture(autouse=True)
def term():
    """Put the disposition of TERM back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


ENDINGS = {
    "done": ([says(DONE)], 0, ["attempt_start", "attempt_end", "job_end"]),
    "done, whatever the launcher says": ([says(DONE, status=143)], 0, ["attempt_start", "attempt_end", "job_end"]),
    "failed for good": ([says(FAILED, rank=1)], 77, ["attempt_start", "attempt_end", "job_end"]),
    "fenced by its own rank": ([says("78 rank 1 on n2: x", rank=1)], 78, ["attempt_start", "attempt_end", "fenced"]),
    "lost, then done": (
        [says(LOST, rank=1), says(DONE)],
        0,
        ["attempt_start", "attempt_end", "restart", "attempt_start", "attempt_end", "job_end"],
    ),
    "killed, then done": (
        [silent(137), says(DONE)],
        0,
        ["attempt_start", "attempt_end", "restart", "attempt_start", "attempt_end", "job_end"],
    ),
    "stop signal received": ([says(STOPPED)], None, ["attempt_start", "attempt_end", "requeue"]),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_how_the_ranks_end_decides(case, name):
    case.attempts, status, decisions = ENDINGS[name]
    case.attempts = list(case.attempts)
    assert case.supervise() == status
    assert case.decisions() == decisions
    assert case.attempts == []
    assert len(case.finished) == decisions.count("attempt_end") - (status == 78), "none once another has taken over"


def test_a_job_that_is_started_again_after_its_training_was_finished_ends_without_ranks(case):
    case.attempts, case.restarts = [says(DONE)], 1
    case.asked(restarts=1)
    assert case.supervise() == 0
    case.restarts = 2
    assert case.supervise() == 0
    assert case.log[-2] == "job 17 ends with status 0: attempt 1.0 has finished the training, so no ranks are started"
    assert case.decisions() == ["attempt_start", "attempt_end", "job_end", "job_end"]


@pytest.mark.parametrize("last", [STOPPED, FAILED])
def test_a_job_whose_training_was_not_finished_goes_on(case, last):
    folder = case.run.attempt("17", "0.0")
    folder.mkdir(parents=True)
    (folder / "0.end").write_text(f"{last}\n")
    case.attempts, case.restarts = [says(DONE)], 1
    case.asked(restarts=1)
    assert case.supervise() == 0
    assert case.attempts == []


@pytest.mark.parametrize(
    ("known", "record", "released"),
    [
        ({"preempted": True}, DONE, True),
        ({"restarts": 1}, DONE, True),
        ({}, DONE, False),
        ({"preempted": True}, FAILED, False),
    ],
)
def test_jobs_that_wait_for_its_success_are_released_where_slurm_may_see_none(case, known, record, released):
    def end(case, folder):
        case.asked(**known)
        return says(record)(case, folder)

    case.restarts = known.get("restarts", 0)
    case.asked(restarts=case.restarts)
    case.attempts = [end]
    assert case.supervise() == (0 if record == DONE else 77)
    assert (("release", "17") in case.slurm.orders) is released
    assert case.log[-1].startswith("job 18 now waits for the end of this job") is released


def test_a_controller_that_is_silent_at_the_end_changes_nothing(case):
    def end(case, folder):
        case.slurm.info = ClusterError("no answer")
        return says(DONE)(case, folder)

    case.attempts = [end]
    assert case.supervise() == 0


def test_it_gives_up_after_max_restarts_and_frees_the_run(case):
    case.options = Options(max_restarts=2)
    case.attempts = [silent(5)] * 3
    assert case.supervise() == 5
    assert "gives up: 3 starts in a row failed, with no new checkpoint since (--max-restarts 2)" in case.log[-1]
    assert case.events("job_end")[0]["status"] == 5
    assert not case.run.owner.exists()


def test_a_new_checkpoint_starts_the_count_again_and_time_does_not(case):
    case.options = Options(max_restarts=1)

    def step(number):
        def start(case, folder):
            add_checkpoint(case.run, number)
            (case.run.checkpoints / f".step-00000009{number}").mkdir()
            return says(LOST)(case, folder)

        return start

    case.attempts = [step(1), step(2), step(3), says(LOST, lasts_s=6000)]
    assert case.supervise() == 76
    assert case.attempts == []
    assert len(case.events("restart")) == 3


def test_what_lies_in_an_attempts_folder_is_set_aside(case):
    old = case.run.attempt("17", "0.0")
    old.mkdir(parents=True)
    (old / "0.end").write_text(DONE)
    case.attempts = [silent(1), says(DONE)]
    assert case.supervise() == 0
    assert len(list(old.parent.glob("0.0.before-*/0.end"))) == 1


def test_the_log_tells_people_what_the_events_tell_programs_and_each_attempt_has_files_and_ports_of_its_own(case):
    case.attempts, case.options = [silent(1), says(DONE)], Options(rendezvous_file=True)
    case.slurm.addresses = {"n1": "10.0.0.1"}
    case.asked(started=datetime.fromtimestamp(900, UTC), submitted=datetime.fromtimestamp(800, UTC))
    assert case.supervise() == 0
    first, second = case.events("attempt_start")
    assert (first["nodes"], first["log_offset"], second["log_offset"]) == ("n[1-2]", 0, 2)
    assert (first["allocated"], second["allocated"]) == (900.0, 900.0)
    assert (first["queued"], second["queued"]) == (800.0, 800.0)
    assert case.log[0].startswith("job 17, attempt 0.0, on n[1-2], output of the ranks in ")
    assert case.log[1].endswith(
        "ended with status 1: no rank left a record of its end, as after kill -9; the status is srun's"
    )
    assert list(case.events()[0])[:6] == ["time", "event", "job", "attempt", "rank", "host"]
    assert case.finished == ["1", "0"] and case.run.attempts("17") == ["0.0", "0.1"]
    for attempt, environ in zip(("0.0", "0.1"), case.environments, strict=True):
        assert environ[variables.OWNER] == f"c 17 {attempt}"
        assert environ[variables.RENDEZVOUS_FILE] == f"file://{case.run.rendezvous_file('17', attempt)}"
        assert (environ["MASTER_ADDR"], environ[variables.HEAD_ADDRESS]) == ("n1", "10.0.0.1")
    ports = {environ[name] for environ in case.environments for name in ("MASTER_PORT", variables.STORE_PORT)}
    assert len(ports) == 4
    assert (case.run.path / ".gitignore").read_text() == "*\n" and not case.run.owner.exists()


BEFORE = {
    "preempted": ({"preempted": True}, None, "preempted; no step is started"),
    "too late": ({"limit_s": 600, "elapsed_s": 500}, None, "100 s are left of the time limit; no step is started"),
    "no room for a notice": (
        {"limit_s": 150},
        77,
        "the time limit is 150 s, and the notice comes 120 s before its end",
    ),
    "a limit without any": ({"limit_s": 60}, 77, "give --time 4 or more"),
    "a shorter lead would do": ({"limit_s": 150}, 77, "or --signal-lead 89 or less"),
}


@pytest.mark.parametrize("name", BEFORE)
def test_before_the_first_start_slurm_is_asked(case, name):
    changes, status, reason = BEFORE[name]
    case.asked(**changes)
    assert case.supervise() == status
    assert reason in case.events("requeue", "job_end")[0]["reason"]
    assert case.environments == []


def test_before_a_restart_slurm_is_asked_again(case):
    def preempted(case, folder):
        case.asked(preempted=True)
        return says(LOST)(case, folder)

    case.attempts = [preempted]
    assert case.supervise() is None
    said = "preempted; no step is started; the last attempt: no record of rank 1; rank 0 on n2: lost rank 0; "
    assert case.events("requeue")[0]["reason"].startswith(said)
    assert case.events("restart") == []


FENCES = {
    "cancelled": (JOB._replace(state="COMPLETING"), "Slurm has the job as COMPLETING"),
    "script killed": (JOB._replace(state="COMPLETING", exit_status="0:9"), "its batch script was ended by signal 9"),
    "started anew": (JOB._replace(restarts=1), "Slurm has started the job again, restart 1 on n1"),
    "elsewhere": (JOB._replace(batch_host="n2"), "Slurm has started the job again, restart 0 on n2"),
    "forgotten": (None, "Slurm no longer knows the job"),
}


@pytest.mark.parametrize("when", ["first", "after a crash", "before a requeue"])
@pytest.mark.parametrize("name", FENCES)
def test_a_job_that_is_not_its_own_any_more_is_left(case, name, when):
    answer, reason = FENCES[name]
    case.slurm.answers = [answer] if when == "first" else [JOB, answer]
    case.attempts = [] if when == "first" else [says(LOST if when == "after a crash" else STOPPED)]
    assert case.supervise() == 78
    assert case.events("fenced")[0]["reason"] == reason
    assert f"writes nothing more: {reason}" in case.log[-1]
    assert case.run.owner.exists() == (when != "first")


def are_spread(pauses) -> bool:
    """Whether they are 10 and 20 s, each by at most a fifth longer or shorter."""
    return pauses == [pytest.approx(10, rel=0.2001), pytest.approx(20, rel=0.2001)]


def test_without_an_answer_nothing_is_started(case):
    case.slurm.answers = [ClusterError("no answer"), ClusterError("no answer"), JOB]
    case.attempts = [says(DONE)]
    assert case.supervise() == 0
    assert [line.partition(", asking again")[0] for line in case.log[:2]] == ["Slurm does not answer"] * 2
    assert are_spread(case.clock.slept)


@pytest.mark.parametrize(("step", "state"), [(None, "it has no checkpoint"), (120, "step-000000120")])
def test_a_job_that_may_not_be_requeued_says_so_and_of_the_state_what_is_there(case, step, state):
    case.asked(requeue=False)
    if step:
        add_checkpoint(case.run, step)
    case.attempts = [says(STOPPED)]
    assert case.supervise() == 75
    reason = case.events("job_end")[0]["reason"]
    assert "(Requeue=0): " in reason and reason.endswith(f"{state}; submit x again to go on")
    assert not case.run.owner.exists() and case.slurm.orders == []


PAST = {
    "without progress": ("idle\n" * 10, None, 75),
    "with a new checkpoint": ("idle\n" * 9 + "progress\n" + "idle\n" * 9, None, None),
    "nine": ("idle\n" * 9, None, None),
    "a cap that is reached": ("progress\n" * 2, 2, 75),
    "a cap that is not, without progress": ("idle\n" * 20, 21, None),
    "other lines": ("x\n\nnone 3\n\xff\n" * 10, None, None),
    "those of an earlier job of the number": ("idle\n" * 10, None, None),
}


@pytest.mark.parametrize("name", PAST)
def test_requeues_by_itself_have_caps(case, name):
    lines, limit, status = PAST[name]
    case.options, case.restarts = Options(max_requeues=limit), int("earlier job" not in name)
    case.asked(restarts=case.restarts)
    case.run.requeues("17").parent.mkdir(parents=True)
    case.run.requeues("17").write_text(lines)
    case.attempts = [says(STOPPED)]
    assert case.supervise() == status
    if status is None:
        assert case.run.requeues("17").read_text() == (lines if case.restarts else "") + "idle\n"
    else:
        assert "requeued itself" in case.log[-1]


def test_a_checkpoint_of_the_program_itself_is_progress(case, tmp_path):
    own = tmp_path / "own out" / "ckpt.pt"
    own.parent.mkdir()
    case.options, case.restarts = Options(max_requeues=1, checkpoints=f"{tmp_path}/*/ckpt.pt"), 1
    case.asked(restarts=1)
    case.run.requeues("17").parent.mkdir(parents=True)
    case.run.requeues("17").write_text("idle\n" * 10)

    def saves(case, folder):
        own.touch()
        os.utime(own, (60, 60))
        os.utime(own.parent, (60, 60))
        return says(STOPPED)(case, folder)

    case.attempts = [saves]
    assert case.supervise() == 75, "one requeue is allowed"
    assert case.log[-1].endswith(
        f"checkpoint is {own} of 1970-01-01T00:01:00Z; submit x again with the arguments that resume it to go on"
    )
    own.unlink()
    case.options = case.options._replace(max_requeues=None)
    case.attempts = [saves]
    assert case.supervise() is None, "the ten had no such checkpoint"
    assert case.run.requeues("17").read_text().endswith("idle\nprogress\n")
    assert [event["checkpoints"] for event in case.events("attempt_start")] == [f"{tmp_path}/*/ckpt.pt"] * 2


@pytest.mark.parametrize("step", [None, 5])
def test_a_first_return_without_a_checkpoint_is_said_once(case, step):
    if step:
        add_checkpoint(case.run, step)
    case.attempts = [says(LOST), says(LOST), says(DONE)]
    case.supervise()
    said = [
        line for line in case.log if "slurmddp knows no checkpoint of this run: the program starts as before" in line
    ]
    assert len(said) == (0 if step else 1)


def test_a_lost_node_is_left_out_beside_those_before(case):
    case.slurm.lost = ("n2",)
    case.asked(excluded_nodes="n7")
    case.attempts = [says(LOST)]
    with pytest.raises(SystemExit) as left:
        case.supervise()
    assert left.value.code == 75
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n7,n2")]
    assert case.events("requeue")[0]["excluded"] == ["n2"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


@pytest.mark.parametrize(
    ("asked", "refusals", "said"),
    [
        ({"required_nodes": "n1,n2"}, [], "n2 cannot be excluded: --nodelist asks for it"),
        ({}, [RefusedError("no")] * 4, "n2 could not be excluded: no"),
    ],
)
def test_where_a_lost_node_cannot_be_left_out_the_job_comes_back_all_the_same(case, asked, refusals, said):
    case.slurm.lost, case.slurm.excludes = ("n2",), list(refusals)
    case.asked(**asked)
    case.attempts = [says(LOST)]
    assert case.supervise() is None
    assert said in case.log and case.slurm.orders[0] == ("requeue", "17")
    assert len(case.slurm.orders) == 1 + len(refusals)
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_IGN


def test_a_refused_requeue_ends_the_job(case):
    case.slurm.requeues = [RefusedError("Requested operation is presently disabled")]
    case.attempts = [says(STOPPED)]
    assert case.supervise() == 75
    assert "Slurm has not requeued the job (Requested operation is presently disabled)" in case.log[-1]


def test_preemptions_do_not_count_as_requeues_without_progress(case):
    """Slurm would requeue the job without end where there is no grace time, too."""
    case.options = Options(max_requeues=1)
    for restarts in range(20):
        case.restarts = restarts
        case.asked(restarts=restarts, preempted=True)
        assert case.supervise() is None, case.log
    assert len(case.slurm.orders) == 20


def test_what_a_program_saves_in_the_runs_folder_of_checkpoints_is_progress(case):
    """By it, an executor's call that saves at each of fifteen short requeues is not given up."""
    case.run.checkpoints.mkdir(parents=True)
    saved = case.run.checkpoints / "call"

    def saves(case, folder):
        saved.touch()
        os.utime(saved, (case.restarts, case.restarts))
        return says(STOPPED)(case, folder)

    for restarts in range(15):
        case.restarts = restarts
        case.asked(restarts=restarts)
        case.attempts = [saves]
        assert case.supervise() is None, case.log
    assert len(case.slurm.orders) == 15
    for restarts in range(15, 26):
        case.restarts = restarts
        case.asked(restarts=restarts)
        case.attempts = [says(STOPPED)]
        ended = case.supervise()
    assert ended == 75 and "requeued itself 10 times in a row without a new checkpoint" in case.log[-1]


def test_a_program_that_reaches_its_time_limit_twice_without_a_new_checkpoint_ends(case):
    """It hangs, or it would begin anew for ever."""
    case.asked(limit_s=3600, elapsed_s=100)

    def reaches_limit(case, folder):
        case.asked(limit_s=3600, elapsed_s=3430)
        return says(STOPPED, lasts_s=3300)(case, folder)

    def saves(case, folder):
        add_checkpoint(case.run, case.restarts + 1)
        return reaches_limit(case, folder)

    ended = []
    for restarts, attempt in enumerate([*[saves] * 30, reaches_limit, saves, reaches_limit, reaches_limit]):
        case.restarts, case.attempts = restarts, [attempt]
        case.asked(restarts=restarts, elapsed_s=100)
        ended.append(case.supervise())
    assert ended == [None] * 33 + [75]
    assert "reached its time limit 2 times in a row without a new checkpoint. If it saves" in case.log[-1]


def test_a_requeue_that_is_not_answered_is_asked_again(case):
    case.slurm.requeues = [ClusterError("busy"), ClusterError("busy")]
    case.attempts = [says(STOPPED)]
    assert case.supervise() is None
    assert case.slurm.orders == [("requeue", "17")] * 3
    assert are_spread(case.clock.slept[:2]) and case.clock.slept[2] == 60


def test_a_job_that_slurm_does_not_end_after_a_requeue_ends_itself(case):
    case.clock = FakeClock(killed_after=None)
    case.attempts = [says(STOPPED)]
    assert case.supervise() == 75
    assert len(case.slurm.orders) == 30
    assert "it has accepted the requeue, and has not ended the job" in case.log[-1]


HOLDERS = {
    "an earlier attempt": ("c 17 0.0", {}, 0),
    "a torn line": ("", {}, 0),
    "a job that is gone": ("c 5 3.1", {"5": [None]}, 0),
    "a job that has ended": ("c 5 3.1", {"5": [JOB._replace(state="FAILED")]}, 0),
    "a job that is just ending": ("c 5 3.1", {"5": [JOB._replace(state="COMPLETING"), ClusterError("?"), None]}, 0),
    "a job that runs": ("c 5 3.1", {"5": [JOB._replace(state="RUNNING")]}, 78),
    "a job in a state of a Slurm to come": ("c 5 3.1", {"5": [JOB._replace(state="HIBERNATING")]}, 78),
    "a job that waits": ("c 5 3.1", {"5": [JOB._replace(state="PENDING")]}, 78),
    "a later attempt": ("c 17 0.10", {}, 78),
    "a later restart": ("c 17 2.0", {}, 78),
    "another cluster": ("d 17 0.0", {}, 78),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_ownership_only_moves_up(case, name):
    line, others, status = HOLDERS[name]
    case.run.path.mkdir(parents=True)
    case.run.owner.write_text(line + "\n")
    case.slurm.others = {number: list(answers) for number, answers in others.items()}
    case.attempts = [says(DONE)]
    assert case.supervise() == status
    assert case.run.owner.exists() == (status == 78)
    assert len(case.environments) == (status == 0)
    assert list(case.run.path.glob(".owner*")) == []


@pytest.mark.parametrize(("failures", "status"), [(2, 0), (99, 75)])
def test_a_disk_that_is_full_may_be_emptied_and_else_ends_the_job(case, monkeypatch, failures, status):
    tries = iter([OSError(28, "No space left on device")] * failures)
    link = os.link

    def full(*words):
        for error in tries:
            raise error
        link(*words)

    monkeypatch.setattr(os, "link", full)
    case.clock.killed_after = None
    case.attempts = [says(DONE)]
    assert case.supervise() == status
    assert case.clock.slept == [60] * min(failures, 10)
    assert "cannot be written to: No space left on device; trying again in 60 s, 10 times at most" in case.log[0]
    assert ("cannot be written to: No space left on device" in case.log[-1]) == (status == 75)


def test_reset_sets_aside_once(case):
    case.options = Options(reset=2)
    kept = (
        "model.pt",
        "rank-0.pt",
        "rank-1.pt",
        "tensorboard",
        "tracker-id",
        "mlflow-run-id",
        "checkpoints/step-000000005",
    )
    for name in kept:
        (case.run.path / name).mkdir(parents=True)

    def start(case, folder):
        (case.run.checkpoints / "step-000000001").mkdir(parents=True)
        return says(LOST)(case, folder)

    case.attempts = [start, says(DONE)]
    assert case.supervise() == 0
    found = [path for path in case.run.before_reset(2).rglob("*") if path.name != "checkpoints"]
    assert sorted(str(path.relative_to(case.run.before_reset(2))) for path in found) == sorted(kept)
    assert [path.name for path in case.run.checkpoints.iterdir()] == ["step-000000001"]
    assert case.log[0] == f"started over; the earlier state of the run is in {case.run.before_reset(2)}"


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"HOME": ""}, "^TOKEN must be set where the job is submitted$"),
        ({"HOME": "", "TOKEN": "x", variables.CODE: "/gone"}, "^/gone is missing; submit the job by `slurmddp submit`"),
    ],
)
def test_what_the_ranks_need_and_do_not_find_is_named(case, environ, reason):
    case.options, case.environ = Options(require_env=("HOME", "TOKEN")), environ
    assert case.supervise() == 77
    assert re.search(reason, case.events("job_end")[0]["reason"])


@pytest.mark.parametrize("record", [DONE, STOPPED, LOST, FAILED])
def test_in_somebody_elses_allocation_the_ranks_start_once_and_slurm_is_not_asked(case, record):
    case.options = Options(single_attempt=True)
    case.slurm.answers = [AssertionError("asked")]
    case.attempts = [says(record)]
    assert case.supervise() == int(record.split()[0])
    assert case.decisions() == ["attempt_start", "attempt_end", "job_end"]
    assert case.slurm.orders == [] and not case.run.owner.exists()


def test_a_job_that_was_handed_to_sbatch_by_hand_is_on_record_once(case):
    case.asked(submitted=datetime.fromtimestamp(800, UTC))
    case.attempts = [silent(1), says(DONE)]
    case.supervise()
    (record,) = submissions(case.run)
    assert (record["job"], record["time"], record["sha256"]) == ("17", "1970-01-01T00:13:20+00:00", "digest of 17")
    assert (record["folder"], record["inode"]) == (str(case.run.path), case.run.path.stat().st_ino)


@pytest.mark.parametrize(("since_s", "restarts", "is_recorded"), [(10, 0, False), (400, 0, True), (10, 1, True)])
def test_a_job_whose_submission_was_killed_is_on_record_once_that_is_certain(case, since_s, restarts, is_recorded):
    """The submission left that it holds the run; for some minutes it may still be at work."""
    case.run.path.mkdir(parents=True)
    case.run.claim.write_text("n9 1")
    case.restarts = restarts
    case.asked(submitted=datetime.fromtimestamp(1000 - since_s, UTC), restarts=restarts)
    case.attempts = [says(DONE)]
    assert case.supervise() == 0
    assert [record["job"] for record in submissions(case.run)] == ["17"] * is_recorded


@pytest.mark.parametrize("known", ["on record", "being submitted", "of a run without submissions"])
def test_a_job_that_submit_records_is_left_to_it(case, known):
    case.run.path.mkdir(parents=True)
    if known == "on record":
        case.run.submissions.write_text('{"job": "17"}\n')
    elif known == "being submitted":
        case.run.claim.write_text("n9 1")
    case.options = Options(record=known != "of a run without submissions")
    case.attempts = [says(DONE)]
    case.supervise()
    assert len(submissions(case.run)) == (known == "on record")


@pytest.mark.parametrize(("preempted", "set_back_s"), [(True, 0), (False, 0), (True, 3600)])
def test_after_a_long_wait_slurm_is_asked_again_before_the_ranks_start(case, preempted, set_back_s):
    """A holder that was ending took its time; meanwhile the job was preempted, or is nearer to its time limit.

    The clock may have been set back.
    """
    case.clock.set_back_s = set_back_s
    case.run.path.mkdir(parents=True)
    case.run.owner.write_text("c 5 3.1\n")
    case.slurm.others = {"5": [JOB._replace(state="COMPLETING"), None]}
    limited = JOB._replace(limit_s=3600, elapsed_s=0)
    case.slurm.answers = [limited, limited._replace(elapsed_s=5, preempted=preempted)]
    case.asked(preempted=preempted)
    case.attempts = [says(DONE)]
    assert case.supervise() == (None if preempted else 0)
    if preempted:
        assert case.environments == []
        assert case.events("requeue")[0]["reason"] == "preempted; no step is started"
    else:
        assert case.environments[0][variables.STOP_AT] == str(1000 + 3600 - 120)


@pytest.mark.parametrize("lost", [(), ("n2",)])
def test_a_requeue_whose_answer_was_lost_is_one(case, lost):
    """Slurm has taken the order, and its answer did not arrive."""
    case.slurm.lost, case.slurm.requeues = lost, [ClusterError("timed out")]
    waits = JOB._replace(state="PENDING", restarts=1)
    case.slurm.answers = [JOB, JOB, JOB, waits] if lost else [JOB, JOB, waits]
    case.attempts = [says(LOST if lost else STOPPED)]
    with pytest.raises(SystemExit) as left:
        case.supervise()
    assert left.value.code == 75
    assert case.slurm.orders == [("requeue", "17"), *([("exclude", "17", "n2")] if lost else [])]
    assert case.events("fenced") == []


def test_a_file_system_that_fails_ends_the_job_in_a_line(case, monkeypatch):
    def fails(*_, **__):
        raise OSError(116, "Stale file handle", "/runs/x")

    monkeypatch.setattr(attempts, "read_result", fails)
    case.attempts = [says(DONE)]
    assert case.supervise() == 76
    assert case.events("job_end")[0]["reason"] == "/runs/x: Stale file handle"


def test_a_run_that_others_take_every_time_is_left_to_them(case, monkeypatch):
    monkeypatch.setattr(ownership, "create_exclusively", lambda *_: False)
    monkeypatch.setattr(ownership, "PAUSE_S", 0)
    assert case.supervise() == 78
    assert "names no attempt, not c 17 0.0, after 100 tries" in case.events("fenced")[0]["reason"]


def hung(record: str = "", *, goes_on: bool = False) -> Callable[[Case, Path], int]:
    """Return two ranks that report until they are killed, or go on after a while: rank 0 waits for rank 1."""

    def start(case: Case, folder: Path) -> int:
        environ = case.environments[-1]
        host, port = environ[variables.BEATS].split(":")
        assert host == "n1"
        waits = Beat(0, 2, "4", "n1", 1, 0.2, wait="barrier", place="main() at train.py:9")
        sleeps = Beat(1, 2, "4", "n2", 1, 0.2, place="load() at data.py:40")
        if record:
            (folder / "1.end").write_text(record + "\n")
        began = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            while ("KILL", "17.4") not in case.slurm.orders and time.monotonic() - began < HANGS_S:
                for one in (waits, sleeps):
                    beat = one._replace(done=int(10 * goes_on * max(0.0, time.monotonic() - began - HANGS_S / 2)))
                    sending.sendto(seal(beat, environ[variables.SECRET]), ("127.0.0.1", int(port)))
                time.sleep(0.05)
        return 137

    return start


HANGS_S = 2.0


@pytest.fixture(autouse=True)
def judge_often(monkeypatch, case):
    monkeypatch.setattr("slurmddp.watchdog.nodes.look_at_nodes", case.slurm.look)
    monkeypatch.setattr("slurmddp.batch.watch.TICK_S", 0.1)
    monkeypatch.setattr("slurmddp.batch.watch.SAVE_S", 0.2)


def test_ranks_that_hang_are_killed_and_started_again(case):
    case.options = Options(hang_timeout="1")
    case.attempts = [hung(), says(DONE)]
    assert case.supervise() == 0
    kinds = ["attempt_start", "hang", "usage", "attempt_end", "restart", "attempt_start", "attempt_end", "job_end"]
    assert case.decisions() == kinds
    (event,) = case.events("hang")
    text = "rank 1 on n2 in load() at data.py:40, while 1 rank waited in barrier"
    assert (event["reason"], event["hung_ranks"], event["hung_hosts"], event["ends"]) == (text, [1], ["n2"], True)
    assert case.events("attempt_end")[0]["reason"] == f"hung for 1s: {text}"
    assert case.events("attempt_end")[0]["status"] == 76
    assert f"WARNING: the training makes no progress for 1s: {text}" in case.log
    assert event["place"] == "load() at data.py:40"
    assert [row["rank"] for row in json.loads(case.run.stacks("17", "0.0").read_text())] == [1, 0]


def test_a_hang_is_said_once_and_nothing_is_killed_without_the_option(case, monkeypatch):
    monkeypatch.setattr(watchdog_policy, "FIRST_STEP_S", 0.5)
    case.attempts = [hung(goes_on=True), says(DONE)]
    assert case.supervise() == 0
    assert case.slurm.orders == []
    assert [(event["event"], event.get("ends")) for event in case.events("hang", "hang_end")] == [
        ("hang", False),
        ("hang_end", None),
    ]
    assert case.events("attempt_end")[0]["status"] == 137


def test_a_failure_of_the_program_counts_more_than_the_hang_that_follows(case):
    case.options = Options(hang_timeout="1")
    case.attempts = [hung(FAILED)]
    assert case.supervise() == 77
    assert case.events("hang")[0]["hung_ranks"] == [1]


def test_ranks_that_hang_each_time_end_the_job(case):
    case.options = Options(hang_timeout="1", max_restarts=0)
    case.attempts = [hung()]
    assert case.supervise() == 76
    assert "gives up: 1 start in a row failed" in case.log[-1]


def test_without_a_port_the_ranks_are_not_watched(case, monkeypatch):
    def fail(*_, **__):
        raise OSError

    monkeypatch.setattr("slurmddp.batch.watch.open_socket", fail)
    case.attempts = [says(DONE)]
    assert case.supervise() == 0
    assert variables.BEATS not in case.environments[0]


def speak_against(*nodes, cluster="c", time=900.0):
    proofs = [NodeEvidence(time, cluster, node, "gpu-broken", PROOF, "Xid 79") for node in nodes]
    node_store.note(proofs, time)


def judging(case, *nodes):
    """Let what an attempt shows speak against nodes."""
    case.judged = type("Judged", (list,), {"append": lambda _, attempt: speak_against(*nodes) if attempt else None})()


def test_after_a_crash_by_a_broken_node_the_job_is_requeued_without_it(case):
    judging(case, "n2", "n7", "n5")
    case.asked(partition="gpu")
    case.attempts = [says(LOST, rank=1)]
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n2,n5")], "a quarter of eight nodes"
    (requeue,) = case.events("requeue")
    assert requeue["reason"].startswith("without n2; the last attempt: no record of rank 0; rank 1 on n2: lost rank 0")
    assert "the next start leaves out n2: Xid 79, 1m41s ago" in case.log


@pytest.mark.parametrize(
    ("known", "options"),
    [
        ({}, Options(avoid=False)),
        ({"required_nodes": "n1,n2"}, Options()),
        ({"requeue": False}, Options()),
        ({"excluded_nodes": "n7,n8"}, Options()),
    ],
    ids=["--no-avoid", "--nodelist", "Requeue=0", "a quarter is left out already"],
)
def test_a_broken_node_that_must_stay_is_tried_again(case, known, options):
    judging(case, "n2")
    case.asked(partition="gpu", **known)
    case.options, case.attempts = options, [says(LOST, rank=1), says(DONE)]
    assert case.supervise() == 0
    assert case.slurm.orders == []


def test_a_requeue_for_another_reason_leaves_out_what_other_runs_have_noted(case):
    speak_against("n8", "n6")
    speak_against("n5", cluster="another")
    case.asked(partition="gpu", excluded_nodes="n7")
    case.attempts = [says(STOPPED)]
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n7,n6")]


@pytest.mark.parametrize(("record", "judged"), [(DONE, []), (FAILED, ["0.0"]), ("78 rank 1 on n2: x", [])])
def test_the_nodes_of_a_failed_attempt_are_judged(case, record, judged):
    case.attempts = [says(record, rank=int(record[0] != "0"))]
    case.supervise()
    assert case.judged == judged


def test_the_nodes_of_a_good_attempt_are_judged_where_a_rank_was_slow(case):
    def slow(case, folder):
        event = {"time": 1.0, "event": "straggler", "job": "17", "attempt": "0.0", "rank": 0, "host": "n1"}
        with case.run.events.open("a") as file:
            file.write(json.dumps(event) + "\n")
        return says(DONE)(case, folder)

    case.attempts = [slow]
    assert case.supervise() == 0
    assert case.judged == ["0.0"]


@pytest.mark.parametrize(
    ("record", "known", "forbidden"),
    [
        (FAILED, {"expedited": True}, True),
        (DONE, {"expedited": True}, False),
        (FAILED, {}, False),
        (FAILED, {"expedited": True, "restarts": 1}, False),
    ],
    ids=["failed", "done", "not expedited", "started again elsewhere"],
)
def test_slurm_does_not_hold_an_expedited_job_that_failed_for_good(case, record, known, forbidden):
    def end(case, folder):
        case.asked(**known)
        return says(record, rank=int(record == FAILED))(case, folder)

    case.attempts = [end]
    case.supervise()
    assert (("requeue is", "17", "0") in case.slurm.orders) is forbidden


def with_spares(case, number=1, **options):
    """Give the job so many nodes beyond the two that train."""
    case.options = Options(spares=number, **{"max_restarts": 0} | options)
    case.hosts = tuple(f"n{1 + index}" for index in range(2 + number))


def losing(*nodes, record=LOST):
    """Return ranks that fail because Slurm has lost nodes."""

    def start(case, folder):
        case.slurm.lost = nodes
        return says(record, rank=1)(case, folder)

    return start


PLACED = (variables.HOSTS, "MASTER_ADDR", variables.HEAD_ADDRESS, "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS")


@pytest.mark.parametrize(
    ("lost", "number", "placed"),
    [
        (["n2"], 1, ("n1 n3", "n1", "10.0.0.1", "2", "2", "2")),
        (["n1"], 1, ("n2 n3", "n2", "10.0.0.2", "2", "2", "2")),
        (["n2", "n3"], 2, ("n1 n4", "n1", "10.0.0.1", "2", "2", "2")),
        (["n1", "n2"], 2, ("n3 n4", "n3", "10.0.0.3", "2", "2", "2")),
    ],
    ids=["second", "first", "a spare too", "both"],
)
def test_a_spare_takes_the_place_of_a_lost_node_in_the_same_job(case, lost, number, placed):
    """And the start does not count as a failed one: with --max-restarts 0 a counted one would end the job."""
    with_spares(case, number)
    case.slurm.addresses = {f"n{one}": f"10.0.0.{one}" for one in range(1, 5)}
    case.environ = {"SLURM_NNODES": f"{2 + number}", "SLURM_NTASKS": f"{2 + number}"}
    case.attempts = [losing(*lost), says(DONE)]
    assert case.supervise() == 0
    before, after = ([environ[name] for name in PLACED] for environ in case.environments)
    assert before == ["n1 n2", "n1", "10.0.0.1", "2", "2", "2"]
    assert tuple(after) == placed
    assert [event["nodes"] for event in case.events("attempt_start")] == ["n1,n2", placed[0].replace(" ", ",")]
    assert case.slurm.orders == [] and len(case.events("restart")) == 1
    gone = ", ".join(node for node in lost if node != "n3")
    new = ", ".join(node for node in placed[0].split() if node not in ("n1", "n2"))
    assert f"the ranks start again without {gone}, in whose place is now {new}" in case.log


def test_ranks_of_several_a_node_are_counted_on_the_nodes_in_use(case):
    with_spares(case)
    case.ranks_per_node, case.world_size = 4, 12
    case.attempts = [losing("n2"), says(DONE)]
    assert case.supervise() == 0
    assert [environ["SLURM_NTASKS"] for environ in case.environments] == ["8", "8"]


def test_a_spare_takes_the_place_of_a_broken_node(case):
    with_spares(case)
    judging(case, "n2")
    case.asked(partition="gpu")
    case.attempts = [says(LOST, rank=1), says(DONE)]
    assert case.supervise() == 0
    assert case.environments[1][variables.HOSTS] == "n1 n3"
    assert case.slurm.orders == []


def test_a_failure_that_is_no_nodes_counts_as_before(case):
    with_spares(case, max_restarts=1)
    case.attempts = [says(LOST), losing("n2"), says(LOST)]
    assert case.supervise() == 76
    assert "gives up: 2 starts in a row failed" in case.log[-1]
    assert [environ[variables.HOSTS] for environ in case.environments] == ["n1 n2", "n1 n2", "n1 n3"]


def test_when_the_spares_are_used_up_the_job_is_requeued_without_the_lost_node(case):
    with_spares(case)
    case.attempts = [losing("n2"), losing("n2", "n3")]
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n3")]
    assert case.events("requeue")[0]["reason"] == "lost node n3"


def test_a_spare_that_is_down_itself_is_no_spare(case):
    with_spares(case)
    case.attempts = [losing("n2", "n3")]
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n2")]
    assert len(case.environments) == 1


def checked(start):
    """Return ranks that end when the spares have been checked."""

    def run(case, folder):
        for thread in [thread for thread in threading.enumerate() if "_check_spares" in thread.name]:
            thread.join(10)
        return start(case, folder)

    return run


TRACEBACK = "Traceback (most recent call last):; OSError: [Errno 30] Read-only file system: '/runs/x/spare'"
EXITED = "srun: error: n3: task 0: Exited with exit code 1"


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (([], f"{TRACEBACK}; {EXITED}"), "OSError: [Errno 30] Read-only file system: '/runs/x/spare'"),
        (([], EXITED), EXITED),
        (([], "srun did not end within 60 s"), "srun did not end within 60 s"),
        (([{"python": "2"}], ""), "its versions are {'python': '2'}, and {'python': '3'} on n1"),
    ],
    ids=["read-only", "no reason", "silent", "versions"],
)
def test_a_spare_that_could_not_run_a_rank_is_not_used_and_its_node_is_judged(case, check, said):
    with_spares(case, 2)
    case.slurm.checks = {"n3": check}
    case.attempts = [checked(losing("n2")), says(DONE)]
    assert case.supervise() == 0
    assert case.slurm.checked == [["n1", "n3", "n4"]], "once, on this node too"
    assert [environ[variables.HOSTS] for environ in case.environments] == ["n1 n2", "n1 n4"]
    assert "job 17, attempt 0.0, on n1,n2, spare: n3, n4, output of the ranks in " in case.log[0]
    assert f"ERROR: n3 is not used as a spare: {said}" in case.log
    (event,) = case.events("finding")
    assert [event[key] for key in ("check", "level", "on_host", "what")] == ["spare", "error", "n3", said]
    assert case.judged == ["0.0"]


def test_what_was_found_of_a_spare_is_noted_when_the_ranks_end_well_too(case):
    with_spares(case)
    case.slurm.checks = {"n3": ([], EXITED)}
    case.attempts = [checked(says(DONE))]
    assert case.supervise() == 0
    assert case.judged == ["0.0"]


def test_where_the_check_fails_on_this_node_too_it_says_nothing_of_a_spare(case):
    """Slurm starts no steps, or the run's folder is full."""
    with_spares(case)
    case.slurm.checks = dict.fromkeys(("n1", "n3"), ([], EXITED))
    case.attempts = [checked(losing("n2")), says(DONE)]
    assert case.supervise() == 0
    assert case.environments[1][variables.HOSTS] == "n1 n3"
    assert case.events("finding") == []


def test_without_the_preflight_no_spare_is_checked(case):
    with_spares(case)
    case.environ = {variables.SKIP_PREFLIGHT: "1"}
    case.attempts = [checked(says(DONE))]
    assert case.supervise() == 0
    assert case.slurm.checked == [] and case.judged == []


def test_a_preempted_job_that_has_lost_a_node_goes_back_into_the_queue(case):
    def start(case, folder):
        case.asked(preempted=True)
        return losing("n2")(case, folder)

    with_spares(case)
    case.attempts = [start]
    assert case.supervise() is None
    assert case.events("requeue")[0]["reason"] == "preempted; no step is started"
    assert len(case.environments) == 1


def test_a_node_whose_ranks_fall_silent_and_which_does_not_answer_is_replaced_before_slurm_knows(case, monkeypatch):
    monkeypatch.setattr("slurmddp.batch.watch.LOOK_S", 0.5)
    monkeypatch.setattr("slurmddp.batch.watch.descendants", lambda _: [])

    def half_silent(case, folder):
        environ = case.environments[-1]
        port, secret = int(environ[variables.BEATS].rpartition(":")[2]), environ[variables.SECRET]
        began = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            sending.sendto(seal(Beat(1, 2, "4", "n2", 1, 0.2), secret), ("127.0.0.1", port))
            while ("KILL", "17.4") not in case.slurm.orders and time.monotonic() - began < 10:
                sending.sendto(seal(Beat(0, 2, "4", "n1", 1, 0.2), secret), ("127.0.0.1", port))
                time.sleep(0.05)
        return silent(137)(case, folder)

    with_spares(case)
    case.slurm.unreachable = ("n2",)
    case.attempts = [half_silent, says(DONE)]
    assert case.supervise() == 0
    assert case.environments[1][variables.HOSTS] == "n1 n3"
    assert case.events("attempt_end")[0]["reason"].startswith("no sign of n2 for ")
    assert case.finished_on == ["n1", "n1 n3"], "--after-ranks would wait for the lost node"


def test_a_guard_is_on_another_node_and_on_a_third_when_that_one_is_gone(case):
    with_spares(case, 2, max_restarts=9)
    case.attempts = [says(LOST), losing("n2"), says(LOST), losing("n2", "n3"), says(DONE)]
    assert case.supervise() == 0
    assert case.guards == ["n2", "n3", "n4"]


def test_a_job_with_as_few_nodes_as_spares_trains_on_one(case):
    """The user has given `sbatch --nodes=1`, which counts more than the script's header."""
    case.options, case.hosts = Options(spares=1), ("n1",)
    case.attempts = [says(DONE)]
    assert case.supervise() == 0
    assert case.environments[0][variables.HOSTS] == "n1"
    assert case.guards == []


def test_without_spares_there_is_no_guard_and_the_nodes_are_those_of_the_script(case):
    case.hosts, case.options = ("n1", "n2", "n3"), Options(max_restarts=0)
    case.environ = {"SLURM_NNODES": "3", variables.HOSTS: "n1 n2 n3"}
    case.attempts = [losing("n2")]
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    (environ,) = case.environments
    assert (environ["SLURM_NNODES"], environ[variables.HOSTS]) == ("3", "n1 n2 n3")
    assert "SLURM_NTASKS" not in environ and case.guards == []
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n2")]


def test_a_requeue_leaves_enough_nodes_for_the_spares_too(case):
    """Of eight nodes two could be left out; a job of seven with its spares can do without one."""
    with_spares(case, 5)
    case.asked(partition="gpu")
    case.attempts = [says(STOPPED)]
    speak_against("n8", "n7")
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    assert case.slurm.orders == [("requeue", "17"), ("exclude", "17", "n7")]


def test_an_exclusion_that_slurm_cannot_note_yet_is_asked_for_again(case):
    """Right after a requeue, Slurm may say that it sets the job's DB index, and to try again in a bit."""
    case.slurm.lost, case.slurm.excludes = ("n2",), [ClusterError("job DB index being set")] * 3
    case.attempts = [says(LOST)]
    with pytest.raises(SystemExit, match="75"):
        case.supervise()
    assert case.slurm.orders == [("requeue", "17"), *[("exclude", "17", "n2")] * 4]
    assert case.clock.slept == [1.0] * 3
