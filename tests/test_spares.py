"""Nodes of a training with a spare die on a real Slurm, which learns of it long after: in the end the bits are right.

Both trainings run side by side, on nodes of their own, some of which are spares.
"""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from command_line import SLURMDDP
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

TRAIN = Path(__file__).parent / "programs" / "train.py"
EVERY = 10
PROGRAM = (str(TRAIN), "60", "0.1", str(EVERY))
STEPS_BEFORE = 15
LINES = [
    f"--{when}-ranks=echo $SLURMDDP_ATTEMPT {when} $SLURMD_NODENAME >>$SLURMDDP_RUN_DIR/lines"
    for when in ("before", "after")
]
SILENT_S = 600
"""Slurm takes a node for lost after this time, when the tests are over."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Training:
    """Two nodes train, each with a rank, and others wait."""

    def __init__(
        self, sandbox: slurm_sandbox.Sandbox, root: Path, name: str, nodes: tuple[str, ...], spares: int
    ) -> None:
        self.sandbox, self.root, self.nodes, self.run = sandbox, root, nodes, RunDir(root / "jobs" / name)
        self.environ = {**os.environ, **sandbox.environment(), "OMP_NUM_THREADS": "1"}
        others = ",".join(sorted({*sandbox.plan.node_names} - {*nodes}))
        options = ["--nodes=2", "--ntasks-per-node=1", f"--spares={spares}", f"--exclude={others}", f"--name={name}"]
        self.job = self.call(str(SLURMDDP), "submit", *options, *LINES, *PROGRAM).strip()

    def call(self, *words: str) -> str:
        done = subprocess.run(
            words, cwd=self.root, env=self.environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shown(self, key: str) -> str:
        return re.findall(rf"\b{key}=(\S*)", self.call("scontrol", "--oneliner", "show", "job", self.job))[0]

    def taken(self) -> list[str]:
        path = self.run.path / "steps.1"
        return path.read_text().splitlines() if path.exists() else []

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def hosts_of_ranks(self) -> list[str]:
        """The nodes of each start of the ranks."""
        return [event["nodes"] for event in self.events("attempt_start")]

    def until(self, condition) -> None:
        until(lambda: condition() or self.events("job_end"), 300, self.story, pause_s=ASK_SLURM_S)

    def lose(self, node: str) -> None:
        """Let Slurm have a node as lost, as after SlurmdTimeout."""
        self.call("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=killed")

    def end(self) -> None:
        self.until(lambda: False)
        self.restarts = self.shown("Restarts")
        assert [event["status"] for event in self.events("job_end")] == [0], self.story()

    def story(self) -> str:
        """All that is known, for the message of a test that fails."""
        logs = [f"\n== {path}\n{path.read_text(errors='replace')[-2500:]}" for path in self.run.logs.rglob("*.out")]
        return self.call("scontrol", "show", "job", self.job) + "".join(logs)


def lose_node(training: Training) -> Training:
    """Kill the second node, which Slurm has as one that works until the training has ended."""
    training.until(lambda: len(training.taken()) >= STEPS_BEFORE)
    training.sandbox.kill(training.nodes[1])
    training.end()
    training.lose(training.nodes[1])  # until then the job is COMPLETING
    until(lambda: training.shown("JobState") == "COMPLETED", 60, training.story, pause_s=ASK_SLURM_S)
    return training


def lose_batch_host(training: Training) -> Training:
    """Kill the first node."""
    training.until(lambda: len(training.taken()) >= STEPS_BEFORE)
    training.sandbox.kill(training.nodes[0])
    training.lose(training.nodes[0])
    training.end()
    return training


@pytest.fixture(scope="module")
def played(slurm_programs, tmp_path_factory):
    """Return both trainings, which have ended, and the model of a calm run."""
    del slurm_programs
    root = tmp_path_factory.mktemp("spares")
    (root / "jobs").mkdir()
    plan = slurm_sandbox.Plan(name=f"spares-{os.getpid()}", nodes=8, kill_wait_s=10, slurmd_timeout_s=SILENT_S)
    running = slurm_sandbox.up(plan, die_with_parent=True)
    try:
        hide = ["srun", "--nodes=1", "--nodelist=n3", "mount", "-t", "tmpfs", "none", str(root / "jobs")]
        subprocess.run(hide, cwd=root, env={**os.environ, **running.environment()}, check=True)
        names = running.plan.node_names
        with ThreadPoolExecutor() as pool:
            node = pool.submit(lose_node, Training(running, root, "node", names[:4], spares=2))
            host = pool.submit(lose_batch_host, Training(running, root, "host", names[4:], spares=1))
            words = [SLURMDDP, "run", "--ntasks-per-node=2", "--name=calm", *PROGRAM[:2], "0", PROGRAM[3]]
            environ = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run(words, cwd=root, env=environ, capture_output=True, check=True)
            yield node.result(), host.result(), torch.load(RunDir(root / "jobs/calm").model, weights_only=True)
    finally:
        running.down()


@pytest.mark.slurm
def test_a_lost_node_is_replaced_in_the_same_job_before_slurm_knows(played):
    training, _, _ = played
    assert training.hosts_of_ranks() == ["n1,n2", "n1,n4"], training.story()
    (restart,) = training.events("restart")
    assert restart["reason"].startswith("no sign of n2 for ")
    assert (training.events("requeue"), training.restarts) == ([], "0")
    lines = (training.run.path / "lines").read_text().splitlines()
    before, after = (sorted(line for line in lines if when in line) for when in ("before", "after"))
    assert before == ["0.0 before n1", "0.0 before n2", "0.1 before n1", "0.1 before n4"]
    assert after == ["0.0 after n1", "0.1 after n1", "0.1 after n4"]


@pytest.mark.slurm
def test_a_spare_that_does_not_see_the_run_is_not_used(played):
    """On n3 the file system with the run is not there."""
    training, healthy, _ = played
    (found,) = training.events("finding")
    mark = training.run.attempt(training.job, "0.0") / "spare"
    what = f"FileNotFoundError: [Errno 2] No such file or directory: '{mark}'"
    assert [found[key] for key in ("check", "on_host", "what")] == ["spare", "n3", what]
    assert not mark.exists() and healthy.events("finding") == []


@pytest.mark.slurm
def test_a_lost_batch_host_brings_the_job_back_into_the_queue(played):
    _, training, _ = played
    assert training.hosts_of_ranks() == ["n5,n6", "n6,n7"]
    assert [event["reason"] for event in training.events("requeue")] == ["lost node n5, on which the batch script ran"]
    assert training.restarts == "1"


@pytest.mark.slurm
@pytest.mark.parametrize("which", [0, 1], ids=["node", "batch host"])
def test_no_bit_differs_and_at_most_one_step_is_taken_again(played, which):
    training, wanted = played[which], played[2]
    got = torch.load(training.run.model, weights_only=True)
    assert all(torch.equal(wanted[key], got[key]) for key in wanted), training.story()
    assert len(training.taken()) - len({*training.taken()}) <= 1, training.story()
