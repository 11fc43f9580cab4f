"""Commands that are killed by kill -9 between two of their effects, and typed again, on a real Slurm.

Nothing is lost, nothing is left, nothing is doubled. `make test` plays some instants of each command;
SLURMDDP_TESTS_SOAK=1, as in `make soak`, all of them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from polling import ASK_SLURM_S, until

from slurmddp.runs.layout import RunDir
from slurmddp.runs.submissions import submissions

KILLED = Path(__file__).parents[1] / "support" / "killed.py"
ALL = os.environ.get("SLURMDDP_TESTS_SOAK") == "1"
FEW = 5
"""The instants of a command that `make test` plays."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600 if ALL else 900)]
STATE = {"checkpoints/step-000000007/manifest.json": "{}", "model.pt": "model", "tracker-id": "0" * 32}


@dataclass
class Scene:
    """One run in a folder of its own, and the commands that are typed there."""

    folder: Path
    environ: dict[str, str]
    python: Path
    said: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def run(self) -> RunDir:
        return RunDir(self.folder / "jobs" / self.name)

    def type(self, *words: str, kill: int | None = None) -> int:
        """Type a command; with `kill` it dies before its effect of that number, and with 0 its effects are counted."""
        counting = [str(KILLED), str(kill), str(self.folder.with_suffix(".log")), f"{self.folder.parent}/"]
        command = [sys.executable, *(["-m", "slurmddp"] if kill is None else counting), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=300, check=False
        )
        self.said.append(f"{' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
        assert "Traceback" not in done.stderr, self.said
        return done.returncode

    @property
    def effects(self) -> list[str]:
        return self.folder.with_suffix(".log").read_text().splitlines()

    def slurm(self, *words: str) -> str:
        return subprocess.run(words, env=self.environ, capture_output=True, text=True, check=True).stdout

    def queued(self) -> list[str]:
        """The numbers of the run's jobs that have not ended."""
        return sorted(set(self.slurm("squeue", "-h", "-n", self.name, "-o", "%F").split()))

    def state(self) -> str:
        return self.slurm("squeue", "-h", "-n", self.name, "-o", "%T").strip()


@dataclass(frozen=True)
class Command:
    """A command that is killed; `{name}` stands for the run."""

    words: tuple[str, ...]
    prepare: Callable[[Scene], object] = lambda _: None
    judge: Callable[[Scene], object] = lambda _: None
    is_submission: bool = True

    def type(self, scene: Scene, kill: int | None = None) -> int:
        return scene.type(*(word.format(name=scene.name, python=scene.python) for word in self.words), kill=kill)


RUNNING = ("--ntasks-per-node=1", "--gpus-per-node=1", "--no-python")


def start_job(scene: Scene) -> None:
    """Let a job of the run begin its program."""
    assert scene.type("submit", f"--name={scene.name}", *RUNNING, "sleep", "999") == 0, scene.said
    until(lambda: list(scene.run.logs.glob("*/0.0/0.begin")), 300, lambda: scene.said, pause_s=ASK_SLURM_S)


def make_state(scene: Scene) -> None:
    """Give the run what an earlier job of it might have left."""
    assert scene.type("submit", f"--name={scene.name}", "--hold", *RUNNING, "true") == 0, scene.said
    scene.slurm("scancel", f"--name={scene.name}")
    for path, text in STATE.items():
        (scene.run.path / path).parent.mkdir(parents=True, exist_ok=True)
        (scene.run.path / path).write_text(text)


def judge_reset(scene: Scene) -> None:
    """The job that is queued sets the state aside, once."""
    scene.slurm("scontrol", "release", *scene.queued())
    until(lambda: not scene.queued(), 300, lambda: scene.said, pause_s=ASK_SLURM_S)
    assert [path.name for path in scene.run.path.glob("before-reset-*")] == ["before-reset-1"], scene.said
    kept = {path: (scene.run.before_reset(1) / path).read_text() for path in STATE}
    assert kept == STATE


def judge_cancelled(scene: Scene) -> None:
    until(lambda: not scene.queued(), 60, lambda: scene.said, pause_s=ASK_SLURM_S)


def judge_requeued(scene: Scene) -> None:
    """The job runs again, and is the same."""
    until(lambda: scene.state() == "RUNNING", 120, lambda: [scene.said, scene.state()], pause_s=ASK_SLURM_S)
    until(lambda: list(scene.run.logs.glob("*/[1-9].0/0.begin")), 120, lambda: scene.said, pause_s=ASK_SLURM_S)
    assert scene.queued() == [submissions(scene.run)[0]["job"]]


def judge_copy(scene: Scene) -> None:
    (copy,) = scene.run.codes.iterdir()
    assert (copy / "train.py").is_file() and copy.name == submissions(scene.run)[-1]["code"]


HELD = ("--name={name}", "--hold")
COMMANDS = {
    "submit": Command(("submit", *HELD, "train.py")),
    "reset": Command(("submit", *HELD, "--reset", *RUNNING, "true"), make_state, judge_reset),
    "snapshot": Command(("submit", *HELD, "--snapshot", "train.py"), judge=judge_copy),
    "sweep": Command(("sweep", *HELD, "--set", "lr=1,2,3,4,5", "train.py", "--lr", "{{lr}}")),
    "cancel": Command(("cancel", "{name}"), start_job, judge_cancelled, is_submission=False),
    "requeue": Command(("requeue", "{name}"), start_job, judge_requeued, is_submission=False),
}


def judge_submission(scene: Scene) -> None:
    """One job is in the queue, and on record with its own script."""
    (job,) = scene.queued()
    assert [record["job"] for record in submissions(scene.run)][-1:] == [job]
    script = scene.slurm("scontrol", "write", "batch_script", job, "-")
    assert (
        scene.run.job_script.read_text().strip()
        == scene.run.submitted_script(job).read_text().strip()
        == script.strip()
    )
    assert scene.run.spec.exists()


def play(command: Command, scene: Scene, instant: int) -> str:
    """Kill the command at an instant, type it again, and return what is wrong then."""
    try:
        command.prepare(scene)
        assert command.type(scene, kill=instant) in (-signal.SIGKILL, 0), scene.said
        status = command.type(scene)
        if command.is_submission:
            assert status == 0 or f"belongs to job {scene.queued()[0]}" in scene.said[-1], scene.said
            judge_submission(scene)
        command.judge(scene)
        found = [*scene.run.path.rglob(".*"), *scene.folder.with_suffix(".state").rglob(".*")]
        left = [path.name for path in found if path.name not in (".gitignore", ".slurmddp-files")]
        assert not left, left
    except (AssertionError, ValueError, OSError, IndexError) as error:
        return f"{instant} ({scene.effects[-1]}): {error}"
    finally:
        scene.slurm("scancel", f"--name={scene.name}")
    return ""


@pytest.fixture
def make_scene(tmp_path, slurm_env, small_environment):
    """Return a function that makes a folder to type in, by the number of the instant."""

    def make(command: str, number: int) -> Scene:
        folder = tmp_path / f"{command}-{os.getpid()}-{number}"
        folder.mkdir()
        (folder / "train.py").write_text("print(1)\n")
        environ = {**slurm_env, "XDG_STATE_HOME": str(folder.with_suffix(".state")), "OMP_NUM_THREADS": "1"}
        return Scene(folder, environ, small_environment / "bin/python")

    return make


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_can_be_typed_again(name, make_scene):
    command, first = COMMANDS[name], make_scene(name, 0)
    command.prepare(first)
    assert command.type(first, kill=0) == 0, first.said
    count = len(first.effects)
    first.slurm("scancel", f"--name={first.name}")
    instants = range(1, count + 1) if ALL else sorted({1 + (count - 1) * part // (FEW - 1) for part in range(FEW)})
    with ThreadPoolExecutor(2) as pool:
        wrong = list(pool.map(lambda number: play(command, make_scene(name, number), number), instants))
    assert not any(wrong), "\n".join(filter(None, wrong))
