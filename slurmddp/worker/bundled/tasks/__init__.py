"""The tasks by name: the bundled ones, torchvision's models, and the user's own."""

import importlib
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks.classification import Cifar10, Mnist
from slurmddp.worker.bundled.tasks.gpt import Gpt
from slurmddp.worker.bundled.tasks.torchvision_model import TorchvisionModel
from slurmddp.worker.run_script import prepend_to_path, require_in_snapshot
from slurmddp.worker.task import InMemory, Task


class Linear(Task):
    """Recover the weights and the bias of y = Wx + b: the smallest proof that gradients are averaged right."""

    FEATURES, OUTPUTS, SAMPLES = 8, 2, 4096

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        generator = torch.Generator().manual_seed(options.seed)
        self.weight = torch.randn(self.OUTPUTS, self.FEATURES, generator=generator)
        self.bias = torch.randn(self.OUTPUTS, generator=generator)
        inputs = torch.randn(self.SAMPLES, self.FEATURES, generator=generator)
        self.train = InMemory(inputs, inputs @ self.weight.T + self.bias)

    def model(self) -> nn.Module:
        """Return one linear layer."""
        return nn.Linear(self.FEATURES, self.OUTPUTS)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error of each sample."""
        return (outputs - targets).square().mean(dim=1)


TASKS: Final[dict[str, type[Task]]] = {"linear": Linear, "mnist": Mnist, "cifar10": Cifar10, "gpt": Gpt}
PAIR = 2


def task_class(name: str) -> type[Task]:
    """Return the class of a task name. Raises UsageError when there is none."""
    if name in TASKS:
        return TASKS[name]
    return TorchvisionModel if name.startswith("torchvision:") else load_class(name)


def make_task(options: WorkerOptions) -> Task:
    """Return the task of these options. Raises UsageError when it does not exist, or its data is missing or broken."""
    find_data(options)
    task = task_class(options.task)(options)
    if not hasattr(task, "train"):
        raise UsageError(f"--task {options.task}: __init__ sets no self.train, the samples to train on")
    sets: dict[str, Any] = {"train": task.train} | ({} if task.test is None else {"test": task.test})
    for name, examples in sets.items():
        what = f"--task {options.task}: self.{name}"
        if not hasattr(examples, "__len__") or not hasattr(examples, "__getitem__"):
            raise UsageError(f"{what} has no length or no samples by number; give a map-style dataset")
        if len(examples) == 0:
            raise UsageError(f"{what} is empty")
        sample = examples[0]
        if not isinstance(sample, (tuple, list)) or len(sample) != PAIR or not isinstance(sample[0], Tensor):
            raise UsageError(f"{what}[0] is no pair of an input and its target, of which the input is a tensor")
    return task


def load_class(name: str) -> type[Task]:
    """Return a class of the user; its module is searched as by `python -m`, first in the working directory.

    Raises UsageError when the module or the class does not exist, or the class is not a complete Task.
    """
    module_name, _, class_name = name.partition(":")
    prepend_to_path(require_in_snapshot(str(Path.cwd())))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"--task: there is no module {error.name} in {Path.cwd()} nor among those installed; "
            "type the name as python -m would take it"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        members = [member for member in vars(module).values() if isinstance(member, type) and issubclass(member, Task)]
        own = [member.__name__ for member in members if member.__module__ == module.__name__]
        hint = f"its tasks are {', '.join(own)}" if own else "write class NAME(slurmddp.worker.task.Task) there"
        raise UsageError(f"--task {name}: {module_name} has no {class_name}; {hint}")
    if not isinstance(found, type) or not issubclass(found, Task):
        raise UsageError(f"--task {name}: {class_name} is no task; write class {class_name}(slurmddp.worker.task.Task)")
    for method in ("model", "losses"):
        if getattr(found, method) is getattr(Task, method):
            raise UsageError(f"--task {name}: {class_name} has no method {method}; docs/tasks.md shows a whole task")
    return found
