"""Lightning's Trainer saves at a notice by itself, and goes on at that step."""

import os
import re

import pytest
import torch
from command_line import slurmddp
from framework_job import (
    EPOCHS,
    ON_ONE_MACHINE,
    ON_TWO_NODES,
    PROGRAMS,
    STEP_S,
    final_loss,
    kill_rank,
    places,
    tell_time_limit,
    words,
)
from polling import until

pytestmark = pytest.mark.long


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_lightning_saves_at_each_notice_and_goes_on_there(submit, wait_for_job, slurm, sandbox, tmp_path, nodes):
    """Without a checkpoint of the script's own; at that of the time limit, too, which is not SIGTERM."""
    job = submit("fit", "fork", *words("lightning_fit", tmp_path, STEP_S), nodes=nodes)
    tell_time_limit(job, slurm, wait_for_job)
    until(lambda: job.output().count("started at step") == 4, otherwise=job.story)
    job.preempt(sandbox)
    ended = wait_for_job(job.job_id)
    assert (ended["JobState"], len(job.events("requeue"))) == ("COMPLETED", 2), job.story()
    assert len(starts(job, ranks=2)) == 3 and f"at step {EPOCHS * 8}\n" in job.output(), job.story()
    assert places(job.output()) == (ON_TWO_NODES if nodes == 2 else ON_ONE_MACHINE)
    assert final_loss(job.output()) == pytest.approx(loss_without_lightning(), rel=1e-5)
    assert not list(job.run.checkpoints.iterdir()), "what was saved at a notice goes when the training is complete"


def loss_without_lightning() -> float:
    """The last loss of the same training in plain torch, of one process that has the batches of both ranks."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 8), torch.randn(64, 1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(EPOCHS):
        for indices in torch.randperm(64, generator=torch.Generator().manual_seed(epoch)).split(8):
            loss = torch.nn.functional.mse_loss(model(inputs[indices]), targets[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


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
    (stopped,) = re.findall(
        r"stop signal received at step (\d+) ", job.run.rank_record(job.job_id, "0.0", 0).read_text()
    )
    assert (first, second) == (0, int(stopped))


def test_what_the_ranks_that_survive_a_killed_one_have_done_is_not_done_again(submit, wait_for_job, tmp_path):
    """Without a checkpoint of the script's own."""
    job = submit("fit", "fork", *words("lightning_fit", tmp_path, STEP_S), nodes=1)
    for start in range(2):
        job.until_epochs(more=2)
        kill_rank(job)
        until(lambda start=start: job.output().count("started at step") == 2 * start + 4, otherwise=job.story)
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
    saved = list(map(int, re.findall(r"saved step (\d+), the last finished one", job.output())))
    assert starts(job, ranks=2) == [0, *saved] and 16 <= saved[0] < saved[1], job.story()
    assert final_loss(job.output()) == pytest.approx(loss_without_lightning(), rel=1e-5)
    assert not list(job.run.checkpoints.iterdir())


def test_a_killed_training_goes_on_from_its_own_newest_checkpoint_in_the_folder_of_another_start(
    submit, wait_for_job, tmp_path
):
    job = submit("fit", "srun", *words("lightning_fit", tmp_path, STEP_S, "default"), nodes=1)
    for start in range(2):
        job.until_epochs(more=3)
        kill_rank(job, also_others=True)
        until(lambda start=start: job.output().count("started at step") == 2 * start + 4, otherwise=job.story)
    assert wait_for_job(job.job_id)["JobState"] == "COMPLETED", job.story()
    first, *later = starts(job, ranks=2)
    assert first == 0 and len(later) == 2 and all(step % 8 == 0 and step >= 24 for step in later), job.story()
    assert len(list(tmp_path.glob("own/*/lightning_logs/version_*/checkpoints"))) == 3
    assert not list(job.run.checkpoints.iterdir())


def starts(job, ranks: int) -> list[int]:
    """The steps at which all ranks began, as Lightning says."""
    said = re.findall(r"started at step (\d+) by TorchElasticEnvironment", job.output())
    assert len(said) == ranks * len(set(said))
    return sorted(map(int, set(said)))


OWN_HANDLER = f"""
import os, runpy, signal, sys, threading, time
sys.path.insert(0, {str(PROGRAMS)!r})
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
