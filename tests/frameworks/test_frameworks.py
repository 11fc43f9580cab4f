"""Lightning Fabric, alike by `slurmddp run`, as under torchrun, and in a job; and what Accelerate itself ships."""

import os
import re

import pytest
from command_line import slurmddp
from framework_job import ON_ONE_MACHINE, ON_TWO_NODES, STEP_S, final_loss, places, words

pytestmark = [pytest.mark.soak, pytest.mark.long]


def test_fabric_preempted_on_two_nodes_comes_back_once_and_finds_its_own_checkpoint(
    submit, wait_for_job, sandbox, tmp_path
):
    calm = tmp_path / "calm"
    calm.mkdir()
    command = words("fabric_loop", calm, 0)
    output = slurmddp("run", "--ntasks-per-node=2", *command, cwd=calm, environ=dict(os.environ))
    output += "".join(path.read_text(errors="replace") for path in calm.glob("jobs/*/logs/*/0.0/1.out"))
    assert places(output) == ON_ONE_MACHINE
    job = submit("fabric", "fork", *words("fabric_loop", tmp_path, STEP_S))
    job.until_said("epoch 3 done")
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1), job.story()
    (resumed,) = re.findall(r"resumed at (\d+)", job.run.rank_log(job.job_id, "1.0", 0).read_text())
    assert int(resumed) >= 3
    assert places(job.output()) == ON_TWO_NODES
    assert final_loss(job.output()) == pytest.approx(final_loss(output), rel=1e-5)


def test_a_program_that_accelerate_ships_runs(submit, wait_for_job):
    job = submit("sync", "fork", "-m", "accelerate.test_utils.scripts.test_sync")
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
