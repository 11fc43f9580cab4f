"""The tasks by name: the bundled ones, torchvision's models, and the user's own."""

from typing import Final

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.tasks import user_task
from slurmddp.worker.bundled.tasks.classification import Cifar10, Mnist
from slurmddp.worker.bundled.tasks.gpt import Gpt
from slurmddp.worker.bundled.tasks.linear import Linear
from slurmddp.worker.bundled.tasks.torchvision_model import TorchvisionModel
from slurmddp.worker.task import Task

TASKS: Final[dict[str, type[Task]]] = {"linear": Linear, "mnist": Mnist, "cifar10": Cifar10, "gpt": Gpt}


def task_class(name: str) -> type[Task]:
    """Return the class of a task name. Raises UsageError when there is none."""
    if name in TASKS:
        return TASKS[name]
    return TorchvisionModel if name.startswith("torchvision:") else user_task.load_class(name)


def make_task(options: WorkerOptions) -> Task:
    """Return the task of these options. Raises UsageError when it does not exist, or its data is missing or broken."""
    find_data(options)
    task = task_class(options.task)(options)
    user_task.check_data(task, options.task)
    return task
