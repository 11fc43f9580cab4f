"""Hugging Face's Trainer saves at a notice by itself, and goes on at that step."""

import re

import pytest
from framework_job import PROGRAMS, STEP_S, kill_rank, tell_time_limit
from polling import until

pytestmark = pytest.mark.long
EPOCHS = 16


@pytest.mark.parametrize(
    ("options", "limited"),
    [
        ([], False),
        pytest.param([], True, marks=pytest.mark.soak),
        pytest.param(["enable_jit_checkpoint=true"], True, marks=pytest.mark.soak),
    ],
)
def test_hugging_faces_trainer_saves_at_each_notice_and_goes_on_there(
    submit, wait_for_job, slurm, sandbox, tmp_path, options, limited
):
    """Killed in between, it goes on from the newest complete checkpoint; the model is that of a run without a stop."""
    own = tmp_path / "own"
    own.mkdir()
    foreign = own / "checkpoint-999"
    foreign.mkdir()
    script = str(PROGRAMS / "hf_trainer.py")
    calm = submit("calm", "fork", script, str(EPOCHS), "calm", "0", nodes=1)
    wait_for_job(calm.job_id)
    job = submit("fit", "fork", script, str(EPOCHS), str(own), str(STEP_S), "save_steps=20", *options, nodes=1)
    if limited:
        tell_time_limit(job, slurm, wait_for_job)
    else:
        job.until_said("epoch 3 done")
        job.preempt(sandbox)
    until(lambda: job.output().count("started at step") == 4, otherwise=job.story)
    broken = own / "checkpoint-1000"
    broken.mkdir()
    (broken / "model.safetensors").touch()
    kill_rank(job)
    until(lambda: job.output().count("started at step") == 6, otherwise=job.story)
    if limited:
        job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 1 + limited), job.story()
    steps = re.findall(r"started at step (\d+)", job.output())
    assert len(steps) == 6 + 2 * limited and len(set(steps)) >= 2 + limited, steps
    assert final_weights(job.output()) == final_weights(calm.output()), job.story()
    assert foreign.exists() and not broken.exists() and list(own.glob("incomplete-checkpoint-1000-*"))


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_what_the_ranks_that_survive_a_killed_one_have_done_is_not_done_again(submit, wait_for_job, tmp_path, nodes):
    """Killed are rank 1 and then rank 0, whose batch statistics count; without a checkpoint of the script's own."""
    script = str(PROGRAMS / "hf_trainer.py")
    calm = submit("calm", "fork", script, "8", str(tmp_path / "calm"), "0", nodes=nodes)
    wait_for_job(calm.job_id)
    words = [script, "8", str(tmp_path / "own"), str(STEP_S), 'save_strategy="no"', "dataloader_num_workers=1"]
    job = submit("fit", "srun", *words, nodes=nodes)
    for start in range(2):
        job.until_epochs(more=2)
        kill_rank(job, rank=1 - start)
        until(lambda start=start: job.output().count("started at step") == 2 * start + 4, otherwise=job.story)
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
    saved = re.findall(r"saved step (\d+), the last finished one", job.output())
    steps = [step for step in re.findall(r"started at step (\d+)", job.output()) if step != "0"]
    assert len(saved) == 2 and sorted(steps, key=int) == [saved[0], saved[0], saved[1], saved[1]], job.story()
    assert 16 <= int(saved[0]) < int(saved[1])
    assert final_weights(job.output()) == final_weights(calm.output()), job.story()


def final_weights(output: str) -> set[str]:
    weights = set(re.findall(r"final weights (\w+ at step \d+)", output))
    assert len(weights) == 1, output
    return weights
