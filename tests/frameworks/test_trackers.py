"""wandb goes on with one run of its own, whatever happens to the job."""

import re
from importlib.util import find_spec

import pytest
from framework_job import PROGRAMS
from polling import until

pytestmark = pytest.mark.long


@pytest.mark.skipif(not find_spec("wandb"), reason="wandb is not installed")
def test_a_tracker_outlives_the_notice_and_goes_on_with_its_run(submit, wait_for_job, sandbox, tmp_path):
    """Its service gets Slurm's SIGTERM too; when that ended it, the next `log` raised before the step was saved."""
    wandb = ["--env=WANDB_MODE=offline", f"--env=WANDB_DIR={tmp_path}"]
    job = submit("tracked", "srun", *wandb, str(PROGRAMS / "tracked_loop.py"), "wandb", "60", "0.2", nodes=1, ranks=1)
    until(lambda: "\n12\n" in taken(job), otherwise=job.story)
    sandbox.preempt(job.job_id)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1), job.story()
    assert list(map(int, taken(job).split())) == list(range(60)), "no step was lost or taken twice"
    (step,) = re.findall(r"stop signal received at step (\d+) \(preempted\)", job.events("requeue")[0]["reason"])
    assert job.events("requeue")[0]["reason"].endswith(f"; saved step {step}")
    trackers_runs = [path.name.rpartition("-")[2] for path in tmp_path.glob("wandb/offline-run-*")]
    assert trackers_runs == [job.run.tracker_id.read_text()] * 2


def taken(job) -> str:
    """The steps that rank 0 has taken, a line each."""
    path = job.run.path / "steps.0"
    return path.read_text() if path.exists() else ""
