"""Programs that were not written for slurmddp: alike under every launcher, stopped by a notice, and put back once.

Each of them runs by `slurmddp run`, as under torchrun, in the calm; then on two nodes. Importing Lightning takes
seconds, so there are as few ranks as show the behaviour.
"""

import contextlib
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import slurmddp
from polling import until

from slurmddp.runs.layout import RunDir, read_records

HERE = Path(__file__).parent
EPOCHS, STEP_S = 10, 0.1
KEEPS = {"plain_torchrun": "snapshot.pt", "lightning_fit": "own", "fabric_loop": "fabric.pt", "accelerate_loop": "own"}
"""Each program, and where it keeps its own checkpoints."""
OTHERS = ("plain_torchrun", "fabric_loop")
"""Those that `make test` leaves to `make soak`."""
HF_EPOCHS = 16
FINAL = re.compile(r"final loss (\S+)")
PLACE = re.compile(r"rank (\d+) of (\d+), local (\d+), (\w+)$", re.MULTILINE)


def words(program: str, folder: Path, step_s: float, *more: str) -> list[str]:
    order = [str(EPOCHS), str(folder / KEEPS[program])]
    return [str(HERE / f"{program}.py"), *order, str(step_s), *more]


@dataclass
class Job:
    """One job of a program on the sandbox, and the run's folder."""

    job_id: str
    run: RunDir

    def output(self) -> str:
        """What the ranks printed, of all attempts."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.run.logs.glob("*/*/*.out")))

    def until_said(self, text: str) -> None:
        until(lambda: text in self.output(), otherwise=self.story)

    def preempt(self, sandbox) -> None:
        """Preempt it; its steps take a second longer until that has begun: they must not run out before."""
        slow = self.run.path.parent.parent / "slow"
        slow.touch()
        sandbox.preempt(self.job_id)
        slow.unlink()

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_records(self.run.events) if event["event"] == kind]

    def story(self) -> str:
        return self.run.batch_log(self.job_id).read_text(errors="replace") + self.output()


pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def submit(slurm_env, long_grace, tmp_path) -> Callable[..., Job]:
    del long_grace

    def begin(name: str, launcher: str, *program: str, nodes: int = 2, ranks: int = 2) -> Job:
        shape = [f"--nodes={nodes}", f"--ntasks-per-node={ranks // nodes}", "--partition=low"]
        shape += [f"--launcher={launcher}", f"--name={name}"]
        job_id = slurmddp("submit", *shape, *program, cwd=tmp_path, environ=slurm_env).strip()
        return Job(job_id, RunDir(tmp_path / "jobs" / name))

    return begin


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> Callable[[str], str]:
    """Return a function that runs a program with two ranks on this machine, once, and returns all that was said."""

    @cache
    def run(program: str) -> str:
        folder = tmp_path_factory.mktemp(program)
        command = words(program, folder, 0)
        slurmddp("run", "--ntasks-per-node=2", "--name=calm", *command, cwd=folder, environ=dict(os.environ))
        logs = folder.glob("jobs/calm/logs/*/0.0/*.out")
        return "".join(path.read_text(errors="replace") for path in sorted(logs))

    return run


def final_loss(output: str) -> float:
    (loss,) = set(FINAL.findall(output))
    return float(loss)


def places(output: str) -> set[tuple[str, ...]]:
    """Rank, world size, local rank and device, as the programs' own libraries see them."""
    return set(PLACE.findall(output))


@pytest.mark.parametrize(
    "program", ["lightning_fit", "accelerate_loop", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)]
)
def test_it_runs_on_this_machine(calm, program):
    assert places(calm(program)) == {(str(rank), "2", str(rank), "cpu") for rank in range(2)}


ON_TWO_NODES = {(str(rank), "2", "0", "cpu") for rank in range(2)}


@pytest.mark.parametrize(
    ("program", "launcher"),
    [
        ("accelerate_loop", "fork"),
        pytest.param("plain_torchrun", "srun", marks=pytest.mark.soak),
        pytest.param("fabric_loop", "fork", marks=pytest.mark.soak),
    ],
)
def test_preempted_on_two_nodes_it_comes_back_once_and_finds_its_own_checkpoint(
    calm, submit, wait_for_job, sandbox, program, launcher, tmp_path
):
    job = submit(program, launcher, *words(program, tmp_path, STEP_S))
    job.until_said("epoch 3 done")
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1), job.story()
    (resumed,) = re.findall(r"resumed at (\d+)", job.run.rank_log(job.job_id, "1.0", 0).read_text())
    assert int(resumed) >= 3
    assert places(job.output()) == ON_TWO_NODES
    assert final_loss(job.output()) == pytest.approx(final_loss(calm(program)), rel=1e-5)


def test_lightning_saves_at_each_notice_and_goes_on_there(calm, submit, wait_for_job, slurm, sandbox, tmp_path):
    """Without a checkpoint of the script's own; at that of the time limit, too, which is not SIGTERM."""
    job = submit("fit", "fork", *words("lightning_fit", tmp_path, STEP_S))
    tell_time_limit(job, slurm, wait_for_job)
    until(lambda: job.output().count("started at step") == 4, otherwise=job.story)
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 2), job.story()
    assert len(starts(job, ranks=2)) == 3 and f"at step {EPOCHS * 8}\n" in job.output(), job.story()
    assert places(job.output()) == ON_TWO_NODES
    assert final_loss(job.output()) == pytest.approx(final_loss(calm("lightning_fit")), rel=1e-5)
    assert not list(job.run.checkpoints.iterdir()), "what was saved at a notice goes when the training is complete"


@pytest.mark.skipif(not find_spec("wandb"), reason="wandb is not installed")
def test_a_tracker_outlives_the_notice_and_goes_on_with_its_run(submit, wait_for_job, sandbox, tmp_path):
    """Its service gets Slurm's SIGTERM too; when that ended it, the next `log` raised before the step was saved."""
    wandb = ["--env=WANDB_MODE=offline", f"--env=WANDB_DIR={tmp_path}"]
    job = submit("tracked", "srun", *wandb, str(HERE / "tracked_loop.py"), "wandb", "60", "0.2")
    until(lambda: "\n12\n" in taken(job), otherwise=job.story)
    sandbox.preempt(job.job_id)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1), job.story()
    assert list(map(int, taken(job).split())) == list(range(60)), "no step was lost or taken twice"
    (step,) = re.findall(r"told to stop at step (\d+) \(preempted\)", job.events("requeue")[0]["reason"])
    assert job.events("requeue")[0]["reason"].endswith(f"; saved step {step}")
    trackers_runs = [path.name.rpartition("-")[2] for path in tmp_path.glob("wandb/offline-run-*")]
    assert trackers_runs == [job.run.tracker_id.read_text()] * 2


def taken(job) -> str:
    """The steps that rank 0 has taken, a line each."""
    path = job.run.path / "steps.0"
    return path.read_text() if path.exists() else ""


@pytest.mark.soak
def test_lightning_goes_on_from_the_newest_and_cancelled_stays_cancelled(submit, wait_for_job, slurm, tmp_path):
    """With the script's own checkpoints, and its own `ckpt_path="last"`, those at a notice count as well."""
    job = submit("fit", "srun", *words("lightning_fit", tmp_path, STEP_S, "last"), nodes=1, ranks=1)
    tell_time_limit(job, slurm, wait_for_job)
    job.until_said("epoch 5 done")
    slurm("scancel", job.job_id)
    assert wait_for_job(job.job_id)["JobState"] == "CANCELLED"
    assert [event["event"] for event in job.events("requeue")] == ["requeue"]
    first, second = starts(job, ranks=1)
    (stopped,) = re.findall(r"told to stop at step (\d+) ", job.run.rank_record(job.job_id, "0.0", 0).read_text())
    assert (first, second) == (0, int(stopped))


def tell_time_limit(job, slurm, wait_for_job) -> None:
    job.until_said("epoch 3 done")
    slurm("scancel", "--signal=USR2", job.job_id)
    wait_for_job(job.job_id, "PENDING")


def starts(job, ranks: int) -> list[int]:
    """The steps at which all ranks began, as Lightning says."""
    said = re.findall(r"started at step (\d+) by TorchElasticEnvironment", job.output())
    assert len(said) == ranks * len(set(said))
    return sorted(map(int, set(said)))


@pytest.mark.parametrize("options", [[], pytest.param(["enable_jit_checkpoint=true"], marks=pytest.mark.soak)])
def test_hugging_faces_trainer_saves_at_each_notice_and_goes_on_there(
    submit, wait_for_job, slurm, sandbox, tmp_path, options
):
    """Killed in between, it goes on from the newest complete checkpoint; the model is that of a run without a stop."""
    own = tmp_path / "own"
    own.mkdir()
    foreign = own / "checkpoint-999"
    foreign.mkdir()
    script = str(HERE / "hf_trainer.py")
    calm = submit("calm", "fork", script, str(HF_EPOCHS), "calm", "0", nodes=1)
    wait_for_job(calm.job_id)
    job = submit("fit", "fork", script, str(HF_EPOCHS), str(own), str(STEP_S), "save_steps=20", *options, nodes=1)
    tell_time_limit(job, slurm, wait_for_job)
    until(lambda: job.output().count("started at step") == 4, otherwise=job.story)
    broken = own / "checkpoint-1000"
    broken.mkdir()
    (broken / "model.safetensors").touch()
    kill_rank(job)
    until(lambda: job.output().count("started at step") == 6, otherwise=job.story)
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 2), job.story()
    steps = re.findall(r"started at step (\d+)", job.output())
    assert len(steps) == 8 and len(set(steps)) >= 3, steps
    assert final_weights(job.output()) == final_weights(calm.output()), job.story()
    assert foreign.exists() and not broken.exists() and list(own.glob("incomplete-checkpoint-1000-*"))


def kill_rank(job) -> None:
    """End rank 1 without a warning, when the attempt has saved once more."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if is_rank(path, job)]
    os.kill(max(pids), signal.SIGKILL)


def is_rank(process: Path, job: Job) -> bool:
    with contextlib.suppress(OSError):
        names = (process / "environ").read_bytes().split(b"\0")
        words = (process / "cmdline").read_bytes()
        return b"SLURMDDP_RUN_DIR=" + str(job.run.path).encode() in names and b"runtime.launch.fork" in words
    return False


def final_weights(output: str) -> set[str]:
    weights = set(re.findall(r"final weights (\w+ at step \d+)", output))
    assert len(weights) == 1, output
    return weights


@pytest.mark.soak
def test_a_program_that_accelerate_ships_runs(submit, wait_for_job):
    job = submit("sync", "fork", "-m", "accelerate.test_utils.scripts.test_sync")
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()


OWN_HANDLER = f"""
import os, runpy, signal, sys, threading, time
sys.path.insert(0, {str(HERE)!r})
def told():
    while signal.getsignal(signal.SIGTERM) is before:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)
signal.signal(signal.SIGUSR1, lambda *_: print("own handler", flush=True))
before = signal.getsignal(signal.SIGTERM)
threading.Thread(target=told, daemon=True).start()
runpy.run_module("lightning_fit", run_name="__main__", alter_sys=True)
"""


def test_a_handler_of_the_scripts_own_replaces_ours(tmp_path):
    """And SIGTERM stays with Lightning."""
    script = tmp_path / "own.py"
    script.write_text(OWN_HANDLER)
    command = [str(script), "4", str(tmp_path), str(STEP_S)]
    output = slurmddp("run", "--ntasks-per-node=1", *command, cwd=tmp_path, environ=dict(os.environ))
    assert "own handler" in output and "final loss" in output
