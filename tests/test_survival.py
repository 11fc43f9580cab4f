"""Trainings on a real Slurm that are preempted, killed, cut off, cancelled: each ends with the bits of a calm one.

The cases run side by side, each on three nodes of its own, with 2 ranks under srun or with 4 under fork. `make test`
plays one case of each kind of fault, most by two forked ranks of one node, which start with the least work;
SLURMDDP_TESTS_SOAK=1, as in `make soak`, plays each with both.
"""

import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import torch
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
PROGRAMS = Path(__file__).parent / "programs"
WHOLE, SHARDED = (str(PROGRAMS / "train.py"),), (str(PROGRAMS / "fsdp.py"), "fsdp")
"""Programs of which each rank has the whole state, or a part of it."""
KILL_WAIT_S, GRACE_S = 10, 60
TOTAL, STEP_S, EVERY = 60, 0.1, 10
GROUPS, SPARE = 5, 3
RANKS = (2, 4)
ALL = os.environ.get("SLURMDDP_TESTS_SOAK") == "1"
CANCELS = 5 if ALL else 2
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
CHAOTIC = int(os.environ.get("SLURMDDP_TESTS_CHAOS", "1"))
"""Trainings of each size to which random faults happen."""
LIMIT_S = 3600 if ALL or CHAOTIC > 1 else 1800
pytestmark = [pytest.mark.long, pytest.mark.timeout(LIMIT_S)]
CHAOS_FAULTS, CHAOS_STEP_S = (12, 1.0) if CHAOTIC > 1 else (4, 0.4)


@dataclass
class Training:
    """One run of a program, on nodes that nothing else uses."""

    sandbox: slurm_sandbox.Sandbox
    root: Path
    name: str
    ranks: int
    nodes: list[str]
    partition: str = "low"
    width: int = 2
    program: tuple[str, ...] = WHOLE
    job: str = ""
    ended: dict[str, str] = field(default_factory=dict)
    """Slurm's record of the job at its end; Slurm forgets it after five minutes."""
    faults: list[str] = field(default_factory=list)
    """What chaos did to it."""

    @property
    def run(self) -> RunDir:
        return RunDir(self.root / "jobs" / self.name)

    def submit(self, *options: str, step_s: float = STEP_S) -> None:
        launcher = "srun" if self.ranks == 2 and (ALL or self.width == 2) else "fork"
        others = sorted(set(self.sandbox.plan.node_names) - set(self.nodes))
        words = ["submit", f"--nodes={self.width}", f"--ntasks-per-node={self.ranks // self.width}"]
        words += [f"--launcher={launcher}"]
        words += [f"--partition={self.partition}", f"--exclude={','.join(others)}", f"--name={self.name}", *options]
        program = [*self.program, str(TOTAL), str(step_s), str(EVERY)]
        done = subprocess.run(
            [SLURMDDP, *words, *program], cwd=self.root, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        self.job = done.stdout.strip()

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **self.sandbox.environment(), "OMP_NUM_THREADS": "1"}

    def slurm(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environ, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout

    def record(self) -> dict[str, str]:
        return dict(re.findall(r"([\w/:]+)=(\S*)", self.slurm("scontrol", "--oneliner", "show", "job", self.job)))

    def hosts(self) -> list[str]:
        """The job's nodes, that of the batch script first; none while it waits."""
        record = self.record()
        if record["JobState"] != "RUNNING":
            return []
        names = self.slurm("scontrol", "show", "hostnames", record["NodeList"]).split()
        return sorted(names, key=lambda name: name != record["BatchHost"])

    def over(self) -> bool:
        return self.record()["JobState"] in ENDED

    def taken(self, rank: int = 0) -> list[str]:
        path = self.run.path / f"steps.{rank}"
        return path.read_text().splitlines() if path.exists() else []

    def until(self, condition: Callable[[], object], timeout_s: float = 400) -> None:
        until(condition, timeout_s, self.story, pause_s=ASK_SLURM_S)

    def until_steps(self, more: int) -> None:
        """Wait until so many more steps were taken, by the last rank."""
        wanted = len(self.taken(self.ranks - 1)) + more
        self.until(lambda: len(self.taken(self.ranks - 1)) >= wanted or self.over())

    def end(self) -> str:
        """Wait for the job's end; return Slurm's word for it."""
        self.until(self.over, 800)
        self.ended = self.record()
        if self.ended["JobState"] == "PREEMPTED" and [event["status"] for event in self.events("job_end")][-1:] == [0]:
            self.ended["JobState"] = "COMPLETED"  # so has 24.11 a job of a CANCEL partition that was requeued
        return self.ended["JobState"]

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def figures(self) -> str:
        """What happened, and what it cost, in a line."""
        counts = ", ".join(f"{name} {self.faults.count(name)}" for name in sorted(set(self.faults)))
        starts, again = len(self.events("start")), len(self.taken()) - TOTAL
        return f"{len(self.faults)} faults ({counts}): {starts} starts, {again} of {TOTAL} steps taken again"

    def story(self) -> str:
        """All that is known, for the message of a test that fails."""
        logs = sorted(self.run.logs.rglob("*.out"))
        parts = [f"\n== {path.relative_to(self.root)}\n{path.read_text(errors='replace')[-2500:]}" for path in logs]
        return f"{self.name}: {json.dumps(self.record())}" + "".join(parts)

    def model(self) -> dict[str, torch.Tensor]:
        return torch.load(self.run.model, weights_only=True)


def preempt(training: Training) -> None:
    """Preempt it; its steps take long until that has begun, so that they do not run out on a busy machine."""
    slow = training.run.path / "slow"
    slow.touch()
    training.sandbox.preempt(training.job)
    slow.unlink()


def kill_rank(training: Training) -> None:
    before = len(training.events("start"))
    (training.run.path / f"kill.{training.ranks - 1}").touch()
    training.until(lambda: len(training.events("start")) > before)


def requeue(training: Training) -> None:
    training.slurm("scontrol", "requeue", training.job)


def kill_batch_host(training: Training) -> None:
    training.sandbox.kill(training.hosts()[0])


def kill_other_node(training: Training) -> None:
    training.sandbox.kill(training.hosts()[1])


def fill_disk(training: Training) -> None:
    """Fill the disk of the run's folder, which only root could mount, for 30 s."""
    assert training.run.path.is_mount()
    hog = training.run.path / "hog"
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        with suppress(OSError), hog.open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * 1000)
        time.sleep(0.5)
    hog.unlink()


def stop_processes(found: list[int]) -> None:
    """Stop processes for 90 s, as a node does whose disk or memory answers no more."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in found:
            os.kill(pid, number)
        time.sleep(90 * (number is signal.SIGSTOP))


def stop_rank(training: Training) -> None:
    steps = str(training.run.path / f"steps.{training.ranks - 1}")
    (rank,) = (pid for pid in processes_of(training.run) if steps in open_files(pid))
    stop_processes([rank])


def stop_supervisor(training: Training) -> None:
    command = b"-m\0slurmddp.batch\0"
    (supervisor,) = (pid for pid in processes_of(training.run) if command in Path(f"/proc/{pid}/cmdline").read_bytes())
    stop_processes([supervisor])


def wait_for_limit(training: Training) -> None:
    training.until(lambda: training.events("requeue"))


Fault = Callable[[Training], None]


@dataclass(frozen=True)
class Case:
    """What happens to a training, after how many more steps each, and how many steps may be taken again."""

    faults: tuple[tuple[int, Fault], ...] = ()
    partition: str = "low"
    options: tuple[str, ...] = ()
    step_s: float = STEP_S
    again: int = 0
    program: tuple[str, ...] = WHOLE

    def play(self, training: Training) -> None:
        training.partition, training.program = self.partition, self.program
        training.submit(*self.options, step_s=self.step_s)
        for steps, fault in self.faults:
            training.until(lambda: training.record()["JobState"] == "RUNNING")
            training.until_steps(steps)
            fault(training)


AGAIN = ((4, preempt), (6, kill_rank)) if ALL else ()
"""Faults that `make test` leaves out."""
CASES = {
    "time-limit": Case(((0, wait_for_limit),), options=("--time=2",), step_s=1.8),
    "batch-node": Case(((15, kill_batch_host),), again=1, step_s=0.2),
    "other-node": Case(((15, kill_other_node),), again=1, step_s=0.2),
    "several": Case(((3, preempt), (6, kill_rank), (3, requeue), *AGAIN), options=("--init=file",), step_s=0.5),
    "grace": Case(((15, preempt),)),
    "no-grace": Case(((15, preempt),), partition="nograce"),
    "cancel-mode": Case(((15, preempt),), partition="cancel"),
    "requeue": Case(((15, requeue),)),
    "torchrun": Case(
        ((6, preempt), *AGAIN[1:]),
        options=("--launcher=torchrun", "--rendezvous=file"),
        step_s=0.2,
        again=len(AGAIN[1:]) * (EVERY + 1),
    ),
    "kill-9": Case(((15, kill_rank),)),
    "imports": Case(((0, preempt),)),
    "sharded": Case(((5, preempt), (5, kill_rank)), again=EVERY + 1, program=SHARDED),
    # its last step may come while the disk is full
    "disk-full": Case(((15, fill_disk),), step_s=0.5, again=5 * (EVERY + 1)),
    "stopped-rank": Case(((15, stop_rank),), step_s=0.5),
    "stopped-supervisor": Case(((15, stop_supervisor),), step_s=0.5),
    "calm": Case(step_s=0.0),
    "sharded-calm": Case(step_s=0.0, program=SHARDED),
}


def calm_of(name: str) -> str:
    return "sharded-calm" if name.startswith("sharded") else "calm"


def cut_off(training: Training) -> None:
    """Cut the only node off, plug it in again when Slurm has started the job anew, and wait for the zombie's end."""
    training.width = 1
    training.submit(step_s=1.5)
    training.until_steps(5)
    host = training.record()["BatchHost"]
    training.sandbox.disconnect(host)
    training.until(lambda: len(training.events("start")) > 1)
    with suppress(ClusterError):  # a busy machine takes its time to use the node again
        training.sandbox.reconnect(host)
    training.until(lambda: training.run.rank_record(training.job, "0.0", 0).exists())


def cancel_often(training: Training) -> None:
    """Cancel at random instants of the job's life, some while it is being requeued, and look what was kept."""
    chance = random.Random(training.ranks)  # noqa: S311 - no secret
    for _ in range(CANCELS):
        training.submit(step_s=0.5)
        if chance.random() < 0.4:
            training.until(lambda: training.record()["JobState"] == "RUNNING")
            time.sleep(chance.uniform(0, 6))
            chance.choice([requeue, preempt])(training)
            time.sleep(chance.uniform(0, 3))
        else:
            time.sleep(chance.uniform(0, 9))
        training.slurm("scancel", training.job)
        assert training.end() == "CANCELLED", training.story()
        training.until(lambda: not processes_of(training.run), KILL_WAIT_S + 120)
        assert training.record()["JobState"] == "CANCELLED", training.story()
        saved = [int(path.name.removeprefix("step-")) for path in training.run.checkpoints.glob("step-*")]
        assert max(saved, default=0) == len(set(training.taken())), training.story()
    training.submit("--continue", step_s=0.0)


def touch_kill(training: Training) -> None:
    training.run.path.mkdir(exist_ok=True)
    (training.run.path / f"kill.{training.ranks - 1}").touch()


def lose_node(training: Training) -> None:
    """Take the power of one of the job's nodes, wait for the job's new start, and switch the node on again."""
    before = len(training.events("start"))
    hosts = training.hosts()
    if hosts:
        training.sandbox.kill(hosts[len(training.taken()) % 2])
        training.until(lambda: len(training.events("start")) > before or training.over())
        for node in training.nodes:
            training.sandbox.boot(node)


def cancel_and_submit(training: Training) -> None:
    training.slurm("scancel", training.job)
    if training.end() == "CANCELLED":
        training.submit(step_s=CHAOS_STEP_S)


def preempt_if_running(training: Training) -> None:
    with suppress(SlurmddpError):
        training.sandbox.preempt(training.job)


CHAOS: list[Fault] = [preempt_if_running, touch_kill, requeue, lose_node, cancel_and_submit]


def chaos(seed: int, training: Training) -> None:
    """Let random faults happen at random instants until the job ends or there were enough of them."""
    chance = random.Random(seed * 10 + training.ranks)  # noqa: S311 - no secret
    training.partition = chance.choice(["low", "nograce", "cancel"])
    training.submit(step_s=CHAOS_STEP_S)
    for _ in range(CHAOS_FAULTS):
        time.sleep(chance.uniform(0, 14))
        if training.over():
            break
        fault = chance.choice(CHAOS)
        training.faults.append(fault.__name__)
        fault(training)


TELLING = (
    ("zombie", 2),
    ("time-limit", 2),
    ("several", 2),
    ("batch-node", 4),
    ("cancelled", 2),
    ("torchrun", 2),
    ("sharded", 2),
    ("cancel-mode", 2),
)
"""What `make test` plays: one case of each kind of fault. Those that wait longest come first."""
ON_TWO_NODES = ("several", "batch-node")
"""Of these, those that need two nodes, or show what happens on them."""


def _keys() -> list[tuple[str, int]]:
    """The cases to play, and the calm training that each is compared with."""
    if not ALL:
        return list(dict.fromkeys([*TELLING, *((calm_of(name), ranks) for name, ranks in TELLING)]))
    names = ["zombie", *(f"chaos-{seed}" for seed in range(CHAOTIC)), *CASES, "cancelled"]
    return [(name, ranks) for name in names for ranks in RANKS if name != "disk-full" or os.getuid() == 0]


KEYS = _keys()


def keys(*starts: str) -> list[tuple[str, int]]:
    return [key for key in KEYS if key[0].startswith(starts)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return the folder of all trainings, with a small disk for each of `disk-full`."""
    root = tmp_path_factory.mktemp("survival")
    disks = [root / "jobs" / f"disk-full-{ranks}" for _, ranks in keys("disk-full")]
    for disk in disks:
        disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", disk], check=True)
    yield root
    for disk in disks:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture(scope="module")
def own_sandbox(slurm_programs, root):
    """Return a cluster whose nodes may be killed, and whose grace times are long enough for a machine that is busy."""
    del slurm_programs, root  # what is mounted later, the nodes do not see
    name, nodes = f"survival-{os.getpid()}", GROUPS * SPARE
    plan = slurm_sandbox.Plan(name=name, nodes=nodes, kill_wait_s=KILL_WAIT_S, slurmd_timeout_s=20)
    running = slurm_sandbox.up(plan, die_with_parent=True)
    environment = {**os.environ, **running.environment()}
    for partition in ("low", "cancel"):
        update = ["scontrol", "update", f"PartitionName={partition}", f"GraceTime={GRACE_S}"]
        subprocess.run(update, env=environment, check=True)
    yield running
    running.down()


@pytest.fixture(scope="module")
def fleet(request, own_sandbox, root):
    """Run the cases that the chosen tests want, as many side by side as there are groups of nodes."""
    names = own_sandbox.plan.node_names
    groups: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    for index in range(GROUPS):
        groups.put(list(names[index * SPARE : (index + 1) * SPARE]))

    def play(name: str, act: Callable[[Training], None], ranks: int) -> Training:
        nodes = groups.get()
        try:
            width = 2 if ALL or name in ON_TWO_NODES else 1
            training = Training(own_sandbox, root, f"{name}-{ranks}", ranks, nodes, width=width)
            act(training)
            training.end()
            return training
        finally:
            for node in nodes:
                own_sandbox.boot(node)
            groups.put(nodes)

    acts: dict[str, Callable[[Training], None]] = {"zombie": cut_off, "cancelled": cancel_often}
    acts |= {name: case.play for name, case in CASES.items()}
    acts |= {f"chaos-{seed}": partial(chaos, seed) for seed in range(CHAOTIC)}
    chosen = {
        (item.callspec.params["name"], item.callspec.params["ranks"])
        for item in request.session.items
        if "fleet" in item.fixturenames
    }
    wanted = [key for key in KEYS if key in chosen | {(calm_of(name), ranks) for name, ranks in chosen}]
    with ThreadPoolExecutor(GROUPS) as pool:
        yield {key: pool.submit(play, key[0], acts[key[0]], key[1]) for key in wanted}


Fleet = dict[tuple[str, int], Future[Training]]


@pytest.mark.parametrize(("name", "ranks"), keys("zombie", *CASES))
def test_it_ends_with_the_bits_of_a_calm_one(fleet: Fleet, name, ranks):
    """And takes no step again, after a node's loss one; those since the last checkpoint where parts are divided.

    A rank that is lost when it has given its gradients away has not noted the step, which the others have finished.
    """
    calm, training = fleet[calm_of(name), ranks].result(), fleet[name, ranks].result()
    assert training.ended["JobState"] == "COMPLETED", training.story()
    wanted, got = calm.model(), training.model()
    assert all(torch.equal(wanted[key], got[key]) for key in wanted), training.story()
    most = CASES[name].again if name in CASES else 0
    for rank in range(ranks):
        wanted_steps, steps = set(calm.taken(rank)), set(training.taken(rank))
        assert steps <= wanted_steps and len(wanted_steps - steps) <= most, training.story()
    assert name == "zombie" or len(training.taken()) - TOTAL <= most, training.story()


@pytest.mark.parametrize(("name", "ranks"), keys("grace", "cancel-mode"))
def test_the_job_keeps_its_id_and_says_why_it_came_back(fleet: Fleet, name, ranks):
    training = fleet[name, ranks].result()
    assert {event["attempt"] for event in training.events("start")} == {"0.0", "1.0"}
    assert [event["reason"] for event in training.events("notice")] == ["preempted"]
    (event,) = training.events("requeue")
    assert "stop signal received at step" in event["reason"]


@pytest.mark.parametrize(("name", "ranks"), keys("several"))
def test_each_of_several_faults_was_met(fleet: Fleet, name, ranks):
    assert len(fleet[name, ranks].result().events("start")) >= 1 + len(CASES[name].faults)


@pytest.mark.parametrize(("name", "ranks"), keys("several"))
def test_a_killed_attempt_leaves_its_rendezvous_file_to_itself_and_a_good_end_leaves_none(fleet: Fleet, name, ranks):
    training = fleet[name, ranks].result()
    attempts = training.run.attempts(training.job)
    left = [attempt for attempt in attempts if training.run.rendezvous_file(training.job, attempt).exists()]
    assert left and attempts[-1] not in left, training.story()


@pytest.mark.parametrize(("name", "ranks"), keys("time-limit"))
def test_the_time_limit_is_known_as_such(fleet: Fleet, name, ranks):
    assert {event["reason"] for event in fleet[name, ranks].result().events("notice")} == {"time limit"}


@pytest.mark.parametrize(("name", "ranks"), [key for key in KEYS if key[0] in ("kill-9", "sharded")])
def test_a_killed_rank_costs_its_programs_own_start(fleet: Fleet, name, ranks):
    """The others leave by themselves; the same allocation goes on, with nothing left of the attempt before."""
    training = fleet[name, ranks].result()
    requeues = len(training.events("requeue"))
    first, second = training.events("start")[-2:]
    assert (first["attempt"], second["attempt"]) == (f"{requeues}.0", f"{requeues}.1")
    (restart,) = training.events("restart")
    assert restart["status"] == 76


@pytest.mark.parametrize(("name", "ranks"), keys("cancelled"))
def test_cancelled_stays_cancelled_and_the_next_job_goes_on(fleet: Fleet, name, ranks):
    """The state of every step taken was saved each time; the end has the same bits."""
    calm, training = fleet["calm", ranks].result(), fleet[name, ranks].result()
    assert training.ended["JobState"] == "COMPLETED", training.story()
    assert sorted(training.taken()) == sorted(calm.taken())
    wanted, got = calm.model(), training.model()
    assert all(torch.equal(wanted[key], got[key]) for key in wanted)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "ranks"), [(f"chaos-{seed}", ranks) for seed in range(CHAOTIC) for ranks in RANKS])
def test_chaos_changes_no_bit(fleet: Fleet, name, ranks, capsys):
    calm, training = fleet["calm", ranks].result(), fleet[name, ranks].result()
    assert training.ended["JobState"] == "COMPLETED", training.story()
    with capsys.disabled():
        print(f"\n{ranks} ranks, partition {training.partition}, {training.figures()}")  # noqa: T201 - the figures are wanted
    wanted, got = calm.model(), training.model()
    assert all(torch.equal(wanted[key], got[key]) for key in wanted), training.story()
    steps, lost = set(training.taken()), training.faults.count("lose_node")  # a step that rank 0 has not noted
    assert steps <= set(calm.taken()) and len(set(calm.taken()) - steps) <= lost, training.story()


@pytest.mark.parametrize(("name", "ranks"), keys("zombie"))
def test_a_zombie_writes_nothing(fleet: Fleet, name, ranks):
    """Once the attempt that replaced it has begun, whose step has the same number and is left alone."""
    training = fleet[name, ranks].result()
    assert training.ended["Restarts"] == "1", training.story()
    assert training.run.rank_record(training.job, "0.0", 0).read_text().startswith("78 "), training.story()
    later = next(event for event in training.events("start") if event["attempt"] == "1.0")
    written = [event for event in training.events("checkpoint") if event["attempt"] == "0.0"]
    assert all(event["time"] < later["time"] for event in written)


def open_files(pid: int) -> set[str]:
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}


def processes_of(run: RunDir) -> list[int]:
    """The processes, anywhere on this machine, that belong to a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURMDDP_RUN_DIR={run.path}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("name", "ranks"), KEYS)
def test_no_process_is_left(fleet: Fleet, name, ranks):
    training = fleet[name, ranks].result()
    training.until(lambda: not processes_of(training.run), 120)
