"""Programs that were not written for slurmddp: alike under every launcher, stopped by a notice, and put back once.

Each of them runs by `slurmddp run`, as under torchrun, in the calm; then in a job. Importing these libraries takes
seconds, so there are as few ranks as show the behaviour, in `make test` on one node.
"""

import re

import pytest
from framework_job import ON_ONE_MACHINE, ON_TWO_NODES, STEP_S, final_loss, places, words

OTHERS = ("plain_torchrun", "fabric_loop", "lightning_fit")
"""Those that `make test` leaves to `make soak`."""


pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "program", ["accelerate_loop", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)]
)
def test_it_runs_on_this_machine(calm, program):
    assert places(calm(program)) == ON_ONE_MACHINE


@pytest.mark.parametrize(
    ("program", "launcher", "nodes"),
    [
        ("accelerate_loop", "fork", 1),
        pytest.param("accelerate_loop", "fork", 2, marks=pytest.mark.soak),
        pytest.param("plain_torchrun", "srun", 2, marks=pytest.mark.soak),
        pytest.param("fabric_loop", "fork", 2, marks=pytest.mark.soak),
    ],
)
def test_a_preempted_one_comes_back_once_and_finds_its_own_checkpoint(
    calm, submit, wait_for_job, sandbox, program, launcher, nodes, tmp_path
):
    job = submit(program, launcher, *words(program, tmp_path, STEP_S), nodes=nodes)
    job.until_said("epoch 3 done")
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1), job.story()
    (resumed,) = re.findall(r"resumed at (\d+)", job.run.rank_log(job.job_id, "1.0", 0).read_text())
    assert int(resumed) >= 3
    assert places(job.output()) == (ON_TWO_NODES if nodes == 2 else ON_ONE_MACHINE)
    assert final_loss(job.output()) == pytest.approx(final_loss(calm(program)), rel=1e-5)


@pytest.mark.soak
def test_a_program_that_accelerate_ships_runs(submit, wait_for_job):
    job = submit("sync", "fork", "-m", "accelerate.test_utils.scripts.test_sync")
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
