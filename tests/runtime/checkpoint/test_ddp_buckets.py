"""A resumed DistributedDataParallel builds the buckets of the run before; tests/worker/test_resume.py compares bits."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.runtime.checkpoint.ddp_buckets import Layout


@pytest.fixture(autouse=True)
def _group():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("device_ids", [None, [0]], ids=["CPU", "GPU"])
def test_the_order_of_the_gradients_is_restored(device_ids):
    """A model on a GPU has `device_ids`, to which torch moves its input; here the GPU is played by the CPU."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    model.device_ids, model.device_type = device_ids, "cpu"
    layout = Layout(model)
    layout.restore([1, 0, 3, 2])
    model(torch.ones(1, 2))
    assert layout.order == [1, 0, 3, 2]
    assert model._has_rebuilt_buckets
    assert all(parameter.grad is None for parameter in model.parameters())
