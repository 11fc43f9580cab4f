"""The tasks by name: the bundled ones, torchvision's models, and the user's own."""

from typing import Final

from slurmddp.config.datasets import check
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.tasks import own
from slurmddp.worker.bundled.tasks.cifar10 import Cifar10
from slurmddp.worker.bundled.tasks.gpt import Gpt
from slurmddp.worker.bundled.tasks.images import Images
from slurmddp.worker.bundled.tasks.linear import Linear
from slurmddp.worker.bundled.tasks.vision import Vision
from slurmddp.worker.task import Task

TASKS: Final[dict[str, type[Task]]] = {"linear": Linear, "mnist": Images, "cifar10": Cifar10, "gpt": Gpt}


def task_class(name: str) -> type[Task]:
    """Return the class that a name means. Raises UsageError when it cannot be had."""
    if name in TASKS:
        return TASKS[name]
    return Vision if name.startswith("torchvision:") else own.load(name)


def make_task(options: WorkerOptions) -> Task:
    """Return the task that was asked for.

    Raises UsageError when it cannot be had, or its data is missing or broken.
    """
    check(options)
    task = task_class(options.task)(options)
    own.check_data(task, options.task)
    return task
