"""Every task by its name, on made-up data: alike in the same seed, and whole."""

import pytest
import torch
from torch.utils.data import default_collate

from slurmddp.config.worker_options import BUNDLED, WorkerOptions
from slurmddp.worker.bundled.tasks import make_task, task_class
from slurmddp.worker.task import Task

pytestmark = pytest.mark.usefixtures("torchvision_path")
NAMES = [*BUNDLED, "torchvision:resnet18"]


def some(task: Task, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    return default_collate([getattr(task, part)[index] for index in range(4)])


@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_whole_on_made_up_data(name):
    task = make_task(WorkerOptions(task=name, data="synthetic", seed=5))
    assert isinstance(task, task_class(name))
    torch.manual_seed(0)
    model = task.model().eval()
    for part in ("train",) if task.test is None else ("train", "test"):
        inputs, targets = some(task, part)
        outputs = model(task.transform(inputs) if part == "train" else inputs)
        losses = task.losses(outputs, targets)
        assert (losses.shape, losses.isfinite().all()) == ((4,), True)
        assert all(numbers.shape == (4,) for numbers in task.metrics(outputs, targets).values())
    assert set(task.metrics(outputs, targets)) == ({"gpt": {"bits_per_byte"}, "linear": set()}.get(name, {"accuracy"}))


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_makes_the_data(name):
    """All ranks must see the same."""
    first, same, other = (
        some(make_task(WorkerOptions(task=name, data="synthetic", seed=seed)), "train")[0] for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
