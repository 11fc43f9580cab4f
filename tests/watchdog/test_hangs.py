"""On a real Slurm, trainings of four ranks on two nodes hang: each is found, ended and finished by a second start.

CI plays two; SLURMDDP_TESTS_SOAK=1 plays nine kinds of hang, each in three programs. They run side by side, with
one that does not hang, though one rank computes alone for longer than the time-out.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from polling import ASK_SLURM_S, until

from slurmddp import sandbox as slurm_sandbox
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

SLURMDDP = Path(sys.executable).parent / "slurmddp"
PROGRAM = Path(__file__).parents[1] / "programs" / "hang.py"
TIMEOUT_S, LATE_S, SPIN_FACTOR = 6, 5, 4
PLAYED_AT_ONCE = 3
KINDS = ("sleep", "collective", "leave", "spin", "stop", "lock", "read", "worker", "write")
PROGRAMS = ("steps", "plain", "own")
CI = (("steps", "stop"), ("own", "sleep"))
CASES = [(program, kind) for program in PROGRAMS for kind in KINDS]
if os.environ.get("SLURMDDP_TESTS_SOAK") != "1":
    CASES = [case for case in CASES if case in CI]
OWN = f"""#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {Path(sys.executable).parent}/torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$((20000 + SLURM_JOB_ID % 9000))" {PROGRAM} KIND plain MORE
"""
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
NAMED = {"collective", "leave"}
"""Kinds in which all wait at the end, so that the rank may not stand out."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]


class Played:
    """One training and its job."""

    def __init__(self, sandbox, root, program, kind):
        self.sandbox, self.program, self.kind, self.root = sandbox, program, kind, root
        self.name = f"{program}-{kind}"
        self.run = RunDir(root / "jobs" / self.name)
        self.environ = {**os.environ, **sandbox.environment(), "OMP_NUM_THREADS": "1"}

    def submit(self, *more):
        nodes = ["--nodes=2", f"--name={self.name}", f"--hang-timeout={TIMEOUT_S}s"]
        launcher = "fork" if self.program == "steps" else "srun"
        words = ["--ntasks-per-node=2", "--cpus-per-task=1", f"--launcher={launcher}"]
        words += [str(PROGRAM), self.kind, self.program, *more]
        if self.program == "own":
            script = self.root / f"{self.name}.sh"
            script.write_text(OWN.replace("KIND", self.kind).replace("MORE", " ".join(more)))
            words = [str(script)]
        words = [SLURMDDP, "submit", *nodes, *words]
        done = subprocess.run(words, cwd=self.root, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def play(self):
        """Return Slurm's word for the end of the job."""
        return self.await_end(self.submit())

    def await_end(self, job):
        until(lambda: self.state(job) in ENDED, 400, self.story, pause_s=ASK_SLURM_S)
        return self.state(job)

    def state(self, job):
        words = ["scontrol", "--oneliner", "show", "job", job]
        shown = subprocess.run(words, env=self.environ, capture_output=True, text=True, check=False).stdout
        return dict(re.findall(r"(\w+)=(\S*)", shown)).get("JobState", "")

    def events(self, kind):
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def story(self):
        logs = sorted(self.run.logs.rglob("*.out"))
        return "".join(f"\n== {path}\n{path.read_text(errors='replace')[-2000:]}" for path in logs)

    def model(self):
        return torch.load(self.run.model, weights_only=True)


@pytest.fixture(scope="module")
def played(sandbox, tmp_path_factory) -> dict[tuple[str, str], Future[Played]]:
    root = tmp_path_factory.mktemp("hangs")

    def play(case):
        training = Played(sandbox, root, *case)
        training.ended = training.play()
        return training

    with ThreadPoolExecutor(PLAYED_AT_ONCE) as pool:
        calm = [("steps", "none")] if any(program == "steps" for program, _ in CASES) else []
        yield {case: pool.submit(play, case) for case in (*calm, *CASES)}


@pytest.mark.parametrize(("program", "kind"), CASES)
def test_a_hang_is_found_and_the_training_finished(played, program, kind):
    training = played[program, kind].result()
    story = training.story()
    assert training.ended == "COMPLETED", story
    hangs, starts = training.events("hang"), training.events("attempt_start")
    assert (len(hangs), len(starts)) == (1, 2), story
    limit_s = TIMEOUT_S * (SPIN_FACTOR if kind == "spin" else 1)
    found_s = hangs[0]["time"] - float((training.run.path / "hung").read_text())
    print(f"{training.name}: {found_s:.1f} s: {hangs[0]['reason']}")  # noqa: T201 - the figures
    assert limit_s - 1 <= found_s <= limit_s + LATE_S, story
    assert hangs[0]["hung_ranks"] == [1] or (kind in NAMED and hangs[0]["hung_ranks"] == []), story
    ended = training.events("attempt_end")
    assert ended[0]["status"] == 76
    assert ended[0]["reason"].startswith("hung for "), story
    assert ended[0]["time"] - hangs[0]["time"] < 10
    if program == "steps":
        calm = played["steps", "none"].result()
        assert calm.events("hang") == []
        (resume,) = training.events("resume")
        assert resume["step"] >= 5, "the last finished step is saved; a signal ends a sleep in C"
        assert all(torch.equal(value, calm.model()[name]) for name, value in training.model().items())


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_node_that_is_cut_off_is_named_and_the_training_goes_on_without_it(tmp_path, program):
    """Slurm itself would notice it after two minutes."""
    plan = slurm_sandbox.Plan(name=f"cut-{os.getpid()}", nodes=3, slurmd_timeout_s=120)
    cluster = slurm_sandbox.up(plan, die_with_parent=True)
    try:
        training = Played(cluster, tmp_path, program, "none")
        job = training.submit("100")
        until((training.run.path / "computed").exists, 100, training.story)
        cluster.disconnect("n2")
        until(lambda: training.events("hang"), TIMEOUT_S + 30, training.story)
        until(lambda: training.events("requeue"), 60, training.story)
        assert training.events("requeue")[0]["excluded"] == ["n2"]
        assert training.await_end(job) == "COMPLETED", training.story()
    finally:
        cluster.down()
    (hang,) = training.events("hang")
    print(f"{training.name}: cut: {hang['stalled_s']} s: {hang['reason']}")  # noqa: T201 - the figures
    assert (hang["hung_ranks"], hang["hung_hosts"]) == ([2, 3], ["n2"])
    assert hang["reason"].startswith("ranks 2-3 on n2 unreachable, last "), training.story()
