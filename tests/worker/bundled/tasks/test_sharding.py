"""A task's model, sharded, computes what the plain one does: models whose parts are lists of layers themselves."""

import pytest
import torch
import torch.distributed as dist

import slurmddp
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.model_setup import wrap
from slurmddp.worker.bundled.tasks import make_task


@pytest.fixture
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("name", ["gpt", "cifar10"])
def test_losses_and_gradients_are_those_of_the_plain_model(name):
    options = WorkerOptions(task=name, data="synthetic", strategy="fsdp")
    task = make_task(options)
    torch.manual_seed(0)
    plain = task.model()
    torch.manual_seed(0)
    sharded = wrap(task.model(), options, torch.device("cpu"), torch.float32)
    inputs, targets = task.train.batch(torch.arange(2))
    found = []
    for model in (plain.eval(), sharded.eval()):
        losses = task.losses(model(inputs), targets)
        losses.sum().backward()
        found.append(losses.detach())
    assert torch.equal(*found)
    for one, other in zip(plain.parameters(), sharded.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad.full_tensor())
    assert list(slurmddp.full_state_dict(sharded)) == list(plain.state_dict())
