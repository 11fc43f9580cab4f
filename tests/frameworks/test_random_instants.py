"""Jobs are stopped at random instants, again and again: the numbers are those of a calm run.

SLURMDDP_TESTS_CHAOS is the number of times (4).
"""

import os
import random
import re
import time
from importlib.util import find_spec

import pytest
from framework_job import PROGRAMS, Job, kill_rank
from polling import until

TURNS = int(os.environ.get("SLURMDDP_TESTS_CHAOS", "4"))
STEPS = 100 * TURNS
pytestmark = [pytest.mark.soak, pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture
def stop(sandbox, slurm):
    """Return a function that stops a job in a way that is drawn, up to eight seconds after an attempt has begun.

    Two times of three, it is the time after all ranks have met: the start takes several seconds itself. The signal of
    the time limit always comes then: `scancel` can give it to ranks only, and a real limit also ends by the clock.
    """
    chance = random.Random(TURNS)  # noqa: S311 - no secret

    def tell(job: Job) -> None:
        slurm("scancel", "--signal=USR2", job.job_id)

    def preempt(job: Job) -> None:
        sandbox.preempt(job.job_id)

    ways = {"preempt": preempt, "time limit": tell, "kill": kill_rank}

    seen = set()

    def stop(job: Job, *names: str) -> bool:
        """Stop the attempt that follows the one stopped before; return False when the job ended first."""
        until(lambda: ended(job, slurm) or set(job.attempts()) - seen, 300, job.story)
        new = set(job.attempts()) - seen
        seen.update(new)
        way = chance.choice(names)
        if way == "time limit" or chance.random() < 2 / 3:
            until(lambda: ended(job, slurm) or any((one / "0.begin").exists() for one in new), 300, job.story)
        time.sleep(chance.uniform(0, 8))
        if ended(job, slurm):
            return False
        ways[way](job)
        return True

    return stop


def ended(job: Job, slurm) -> bool:
    return bool(re.search(r"JobState=(COMPLETED|FAILED)", slurm("scontrol", "show", "job", job.job_id)))


@pytest.mark.parametrize("partition", ["low", "nograce"])
@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_a_tracked_loop(tracker, partition, submit, stop, wait_for_job, tmp_path):
    """With a grace time no step is taken twice, without one the weights are the same; the tracker has one run."""
    if not find_spec(tracker):
        pytest.skip(f"{tracker} is not installed")
    settings = ["--env=WANDB_MODE=offline", f"--env=WANDB_DIR={tmp_path}"]
    settings += [f"--env=MLFLOW_TRACKING_URI=file://{tmp_path}/mlruns", "--env=MLFLOW_ALLOW_FILE_STORE=true"]
    program = str(PROGRAMS / "tracked_loop.py")
    calm = submit("calm", "fork", program, "none", str(STEPS), "0", nodes=1)
    wait_for_job(calm.job_id)
    job = submit("job", "srun", *settings, program, tracker, str(STEPS), "0.1", partition=partition)
    ways = ["preempt", "time limit"] if partition == "low" else ["preempt"]
    for _ in range(TURNS):
        assert stop(job, *ways), job.story()
    assert wait_for_job(job.job_id, timeout_s=900)["JobState"] == "COMPLETED", job.story()
    assert (job.run.path / "model.pt").read_bytes() == (calm.run.path / "model.pt").read_bytes()
    assert len(job.attempts()) > TURNS
    for rank in range(2):
        taken = [int(step) for step in (job.run.path / f"steps.{rank}").read_text().split()]
        assert sorted(set(taken)) == [*range(STEPS)]
        assert partition == "nograce" or taken == [*range(STEPS)], job.story()
    if tracker == "wandb":
        names = {path.name.rpartition("-")[2] for path in tmp_path.glob("wandb/offline-run-*")}
    else:
        names = {path.parent.name for path in tmp_path.glob("mlruns/*/*/meta.yaml")}
    assert len(names) == 1, names


def test_lightning_with_its_wandb_logger(submit, stop, wait_for_job, tmp_path):
    """All steps of the training are in wandb's one run, and the loss is that of a calm run."""
    epochs = str(STEPS // 8)
    program = str(PROGRAMS / "lightning_fit.py")
    calm = submit("calm", "fork", program, epochs, str(tmp_path / "calm"), "0", nodes=1)
    wait_for_job(calm.job_id)
    settings = ["--env=WANDB_MODE=offline", f"--env=WANDB_DIR={tmp_path}"]
    job = submit("job", "srun", *settings, program, epochs, str(tmp_path), "0.1", "wandb")
    for _ in range(TURNS):
        assert stop(job, "preempt", "time limit"), job.story()
    assert wait_for_job(job.job_id, timeout_s=900)["JobState"] == "COMPLETED", job.story()
    final = r"final loss \S+ at step \d+"
    assert re.findall(final, job.output()) == re.findall(final, calm.output()), job.story()
    assert len({path.name.rpartition("-")[2] for path in tmp_path.glob("**/offline-run-*")}) == 1


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("options", [[], ["enable_jit_checkpoint=true"]], ids=["plain", "jit"])
def test_hugging_faces_trainer(options, ranks, submit, stop, wait_for_job, tmp_path):
    """It never ends before its last step, and with the weights of a calm run."""
    epochs = str(STEPS * ranks // 16)
    program = str(PROGRAMS / "hf_trainer.py")
    calm = submit("calm", "fork", program, epochs, str(tmp_path / "calm"), "0", nodes=1, ranks=ranks)
    wait_for_job(calm.job_id)
    words = [program, epochs, str(tmp_path / "own"), "0.1", "save_steps=10", *options]
    job = submit("job", "srun", "--max-restarts=99", *words, ranks=ranks)
    for _ in range(TURNS):
        assert stop(job, "preempt", "time limit", "kill"), job.story()
    assert wait_for_job(job.job_id, timeout_s=900)["JobState"] == "COMPLETED", job.story()
    final = r"final weights \w+ at step \d+"
    (weights,) = set(re.findall(final, calm.output()))
    assert set(re.findall(final, job.output())) == {weights} and weights.endswith(f"step {STEPS}"), job.story()
