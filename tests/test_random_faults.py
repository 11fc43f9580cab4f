"""Faults at random instants of a step, again and again: the bits of a calm run, and a table of the steps done twice.

SLURMDDP_TESTS_CHAOS is the number of faults that each training meets (4).
"""

import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
import torch
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.errors import ClusterError
from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
PROGRAM = Path(__file__).parent / "programs" / "phases.py"
FAULTS = int(os.environ.get("SLURMDDP_TESTS_CHAOS", "4"))
STEPS = 60 * FAULTS
PART_S = 0.03
"""A fifth of a step."""
SPARE = 1
"""Nodes of each training beyond those that it asks for."""
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
pytestmark = [pytest.mark.soak, pytest.mark.long, pytest.mark.timeout(4 * 3600)]
TRAININGS = [("fork", 2, 2), ("srun", 2, 1), ("srun", 3, 1), ("fork", 1, 4)]
"""Launcher, nodes, ranks a node."""


@dataclass
class Training:
    """One run, on nodes that nothing else uses."""

    sandbox: slurm_sandbox.Sandbox
    root: Path
    launcher: str
    width: int
    ranks_a_node: int
    nodes: list[str]
    job: str = ""
    faults: list[tuple[str, int, float]] = field(default_factory=list)
    """The name of each, the number of the start that met it, and the time."""
    ended: str = ""
    """Slurm's word for its end, which Slurm forgets after five minutes."""

    @property
    def ranks(self) -> int:
        return self.width * self.ranks_a_node

    @property
    def name(self) -> str:
        return f"{self.launcher}-{self.width}x{self.ranks_a_node}"

    @property
    def run(self) -> RunDir:
        return RunDir(self.root / "jobs" / self.name)

    def slurm(self, *words: str) -> str:
        environ = {**os.environ, **self.sandbox.environment(), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, cwd=self.root, env=environ, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr

    def submit(self, *options: str) -> None:
        words = [str(SLURMDDP), "submit", f"--nodes={self.width}", f"--ntasks-per-node={self.ranks_a_node}"]
        words += [f"--launcher={self.launcher}"]
        others = sorted(set(self.sandbox.plan.node_names) - set(self.nodes))
        words += [f"--exclude={','.join(others)}", f"--name={self.name}", "--max-restarts=999", "--hang-timeout=15s"]
        self.job = self.slurm(*words, *options, str(PROGRAM), str(STEPS), str(PART_S))
        assert self.job.isdecimal(), self.job

    def state(self) -> str:
        found = self.slurm("scontrol", "--oneliner", "show", "job", self.job)
        return found.partition("JobState=")[2].partition(" ")[0]

    def starts(self, rank: int) -> list[tuple[float, dict[int, float]]]:
        """The time of each start of a rank, and those of its steps."""
        found: list[tuple[float, dict[int, float]]] = []
        path = self.run.path / f"steps.{rank}"
        for line in path.read_text().splitlines() if path.exists() else []:
            first, at = line.split()
            if first == "start":
                found.append((float(at), {}))
            else:
                found[-1][1][int(first)] = float(at)
        return found

    def trained(self) -> int:
        """How many starts have come to a step."""
        return sum(bool(steps) for _, steps in self.starts(0))

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, 600, self.story, pause_s=ASK_SLURM_S)

    def story(self) -> str:
        logs = sorted(self.run.logs.rglob("*.out"))
        return f"{self.name}: {self.state()}" + "".join(f"\n== {one}\n{one.read_text()[-2500:]}" for one in logs[-12:])

    def processes(self, *ranks: int) -> list[int]:
        """The training's processes of ranks; of a rank's loader workers none."""
        files = {str(self.run.path / f"steps.{rank}") for rank in ranks}
        found = [
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if files & _open_files(path.parent)
        ]
        return [pid for pid in found if _parent(pid) not in found]

    def hosts(self) -> list[str]:
        names = self.slurm("squeue", "--noheader", "--format=%N", f"--jobs={self.job}")
        return self.slurm("scontrol", "show", "hostnames", names).split()


def _open_files(process: Path) -> set[str]:
    with suppress(OSError):
        return {str(path.readlink()) for path in (process / "fd").iterdir() if path.is_symlink()}
    return set()


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def kill(training: Training, *ranks: int) -> None:
    for pid in training.processes(*ranks):
        os.kill(pid, signal.SIGKILL)


def kill_first(training: Training) -> None:
    kill(training, 0)


def kill_last(training: Training) -> None:
    kill(training, training.ranks - 1)


def kill_two(training: Training) -> None:
    kill(training, 0, training.ranks // 2) if training.ranks > 2 else kill_last(training)


def stop_one(training: Training) -> None:
    """Stop a rank, which neither ends nor answers; the watchdog of hangs ends the attempt."""
    for pid in training.processes(training.ranks - 1):
        os.kill(pid, signal.SIGSTOP)


def raise_in_one(training: Training) -> None:
    """The program's own error ends the job; the person submits it again."""
    (training.run.path / f"raise.{training.ranks - 1}").touch()
    training.until(lambda: training.state() in OVER)
    training.submit("--continue")


def lose_node(training: Training) -> None:
    host = training.hosts()[-1]
    training.sandbox.kill(host)
    _wait_and_heal(training, lambda: training.sandbox.boot(host))


def cut_off(training: Training) -> None:
    host = training.hosts()[-1]
    training.sandbox.disconnect(host)
    _wait_and_heal(training, lambda: training.sandbox.reconnect(host))


def _wait_and_heal(training: Training, heal: Callable[[], None]) -> None:
    before = training.trained()
    training.until(lambda: training.trained() > before or training.state() in OVER)
    with suppress(ClusterError):  # a busy machine takes its time to use the node again
        heal()


KINDS = {kill_first: 3, kill_last: 3, kill_two: 3, stop_one: 2, raise_in_one: 1, lose_node: 1, cut_off: 1}
"""How often each is drawn."""


def play(training: Training) -> None:
    """Let faults happen, each at a random instant of the first two seconds of a start's training."""
    chance = random.Random(training.name + os.environ.get("SLURMDDP_TESTS_SEED", ""))  # noqa: S311 - no secret
    kinds = {kind: often for kind, often in KINDS.items() if training.width > 1 or kind not in (lose_node, cut_off)}
    training.submit()
    for number in range(FAULTS):
        training.until(lambda number=number: training.trained() > number or training.state() in OVER)
        time.sleep(chance.uniform(0.3, 2))
        if training.state() in OVER:
            break
        (kind,) = chance.choices([*kinds], [*kinds.values()])
        training.faults.append((kind.__name__, training.trained(), time.time()))
        kind(training)
    training.until(lambda: training.state() in OVER)
    training.ended = training.state()


def table(training: Training) -> list[str]:
    """A line for each kind of fault: how many, the steps done twice, the times to the next launch and the next step."""
    starts = [training.starts(rank) for rank in range(training.ranks)]
    trained = [start for start in starts[0] if start[1]]
    again, to_launch, to_step = (defaultdict(list) for _ in range(3))
    for (name, _, at), (began, steps) in zip(training.faults, trained[1:], strict=False):
        last = max(max(earlier) for rank in starts for when, earlier in rank if earlier and when < began - 1)
        first_step, first_at = min(steps.items())
        again[name].append(last + 1 - first_step)
        to_launch[name].append(min((launch - at for launch in launches(training) if launch > at - 1), default=0))
        to_step[name].append(first_at - at)
    own = statistics.median(
        min(steps.values()) - max(filter(began.__gt__, launches(training))) for began, steps in trained
    )
    lines = [f"{training.name}: {len(training.faults)} faults; from a launch to its first step {own:.1f} s"]
    for name, lost in again.items():
        twice = f"steps done twice {sum(lost)} in all, {max(lost)} at most"
        launched, stepped = (statistics.median(times[name]) for times in (to_launch, to_step))
        lines.append(
            f"  {name:14} {len(lost):3}  {twice}; after {launched:.1f} s a launch, after {stepped:.1f} s a step"
        )
    return lines


def launches(training: Training) -> list[float]:
    """The times of all launches, to the second."""
    logs = "".join(path.read_text() for path in training.run.logs.glob("*.out"))
    return [
        datetime.fromisoformat(time).timestamp()
        for time in re.findall(r"(\S+) slurmddp: job \w+, attempt \S+, on", logs)
    ]


@pytest.fixture(scope="module")
def played(slurm_programs, tmp_path_factory):
    """Play all trainings side by side; return them, and the model of the calm run of as many ranks."""
    del slurm_programs
    root = tmp_path_factory.mktemp("random-faults")
    sizes = [width + SPARE * (width > 1) for _, width, _ in TRAININGS]
    plan = slurm_sandbox.Plan(name=f"faults-{os.getpid()}", nodes=sum(sizes), kill_wait_s=10, slurmd_timeout_s=20)
    running = slurm_sandbox.up(plan, die_with_parent=True)
    try:
        names = iter(running.plan.node_names)
        trainings = [
            Training(running, root, *training, [next(names) for _ in range(size)])
            for training, size in zip(TRAININGS, sizes, strict=True)
        ]
        with ThreadPoolExecutor(len(trainings)) as pool:
            list(pool.map(play, trainings))
        yield trainings, {ranks: calm(root, ranks) for ranks in {one.ranks for one in trainings}}
    finally:
        running.down()


def calm(root: Path, ranks: int) -> dict[str, torch.Tensor]:
    words = [SLURMDDP, "run", f"--ntasks-per-node={ranks}", f"--name=calm-{ranks}", PROGRAM, str(STEPS), "0"]
    subprocess.run(words, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=True)
    return torch.load(RunDir(root / "jobs" / f"calm-{ranks}").model, weights_only=True)


@pytest.mark.parametrize("index", range(len(TRAININGS)), ids=["{}-{}x{}".format(*one) for one in TRAININGS])
def test_random_faults_change_no_bit(played, index, capsys):
    trainings, models = played
    training = trainings[index]
    with capsys.disabled():
        print("\n" + "\n".join(table(training)))  # noqa: T201 - the figures are wanted
    assert training.ended == "COMPLETED", training.story()
    got, wanted = torch.load(training.run.model, weights_only=True), models[training.ranks]
    assert all(torch.equal(wanted[key], got[key]) for key in wanted), training.story()
