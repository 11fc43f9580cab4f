"""Each script of examples/ trains, is preempted, and goes on where it had saved."""

from pathlib import Path

import pytest
from framework_job import PROGRAMS, final_loss

pytestmark = pytest.mark.long
EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "accelerate_loop": "epoch 1 ",
    "ddp": "epoch 1 ",
    "fsdp2": "step 0 ",
    "huggingface_trainer": "epoch 1 ",
    "lightning_fit": "epoch 1 ",
    "steps": "step 0 ",
}
"""Each script, and what it prints once alone, unless it begins anew; it can save by then."""
SLOW = ("fsdp2", "huggingface_trainer", "lightning_fit")
"""Scripts whose libraries take seconds to import; other tests of `make test` play these libraries."""
STEP_S, EPOCHS = "0.03", "3"


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name in SLOW else name for name in SAID]
)
def test_a_preempted_example_ends_as_one_that_was_not(name, submit, wait_for_job, sandbox):
    words = [str(EXAMPLES / f"{name}.py"), "--epochs", EPOCHS]
    calm = submit("calm", "fork", *words, nodes=1)
    assert wait_for_job(calm.job_id)["JobState"] == "COMPLETED", calm.story()
    job = submit(name, "fork", str(PROGRAMS / "slowed.py"), STEP_S, *words, nodes=2 if name in SLOW else 1)
    job.until_said(SAID[name])
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1), job.story()
    assert len(job.attempts()) == 2 and job.output().count(SAID[name]) == 1, job.story()
    tolerance = 0.1 if name == "lightning_fit" else 0  # which repeats samples
    assert final_loss(calm.output()) == pytest.approx(final_loss(job.output()), rel=tolerance, abs=0), job.story()
