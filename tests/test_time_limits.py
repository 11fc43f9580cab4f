"""Time limits of a real Slurm: a job that makes progress comes back at each, one that hangs ends at the second."""

import pytest
from command_line import slurmddp

from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir

pytestmark = [pytest.mark.slurm, pytest.mark.soak, pytest.mark.timeout(3600)]
HANGS = "import time\nprint('began', flush=True)\ntime.sleep(3600)\n"
TIMES = 30
SAVES = f"""
import os, sys, time
from pathlib import Path
import torch

file = Path(os.environ["SLURMDDP_CHECKPOINT_DIR"], "last.pt")
file.parent.mkdir(parents=True, exist_ok=True)
count = torch.load(file)["count"] if file.exists() else 0
if count == {TIMES}:
    sys.exit(0)
torch.save({{"count": count + 1}}, file)
time.sleep(3600)
"""


@pytest.fixture
def submit(slurm_env, tmp_path, wait_for_job):
    def run(program: str) -> tuple[dict[str, str], RunDir]:
        (tmp_path / "train.py").write_text(program)
        words = ["-N1", "--ntasks-per-node=1", "-t2", "--signal-lead=59", "--checkpoints=jobs/train/checkpoints/*.pt"]
        job_id = slurmddp("submit", *words, "train.py", cwd=tmp_path, environ=slurm_env).strip()
        return wait_for_job(job_id, timeout_s=3500), RunDir(tmp_path / "jobs" / "train")

    return run


def test_a_job_that_hangs_ends_at_its_second_time_limit(submit):
    job, run = submit(HANGS)
    events = [*read_records(run.events)]
    kinds = [event["event"] for event in events]
    assert (job["JobState"], job["Restarts"], kinds.count("attempt_start"), kinds.count("requeue")) == (
        "FAILED",
        "1",
        2,
        1,
    )
    assert "It has reached its time limit 2 times in a row without a new checkpoint" in events[-1]["reason"]


def test_a_job_that_makes_progress_comes_back_as_often_as_it_must(submit):
    job, run = submit(SAVES)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", str(TIMES))
    assert [event["event"] for event in read_records(run.events)].count("requeue") == TIMES
