"""Programs that were not written for slurmddp: alike under every launcher, stopped by a notice, and put back once.

Each of them runs by `slurmddp run`, as under torchrun, in the calm; then on two nodes. Importing Lightning takes
seconds, so there are as few ranks as show the behaviour.
"""

import re

import pytest
from framework_job import ON_ONE_MACHINE, ON_TWO_NODES, STEP_S, final_loss, places, words

OTHERS = ("plain_torchrun", "fabric_loop")
"""Those that `make test` leaves to `make soak`."""


pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "program", ["accelerate_loop", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)]
)
def test_it_runs_on_this_machine(calm, program):
    assert places(calm(program)) == ON_ONE_MACHINE


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


@pytest.mark.soak
def test_a_program_that_accelerate_ships_runs(submit, wait_for_job):
    job = submit("sync", "fork", "-m", "accelerate.test_utils.scripts.test_sync")
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
