"""Bundled trainings as the worker takes them, on tasks with enough samples for long epochs. No processes, no files."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpu_device import Bench

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.runtime.session import Session
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.bundled.tasks.gpt import Decoder
from slurmddp.worker.bundled.train import Training
from slurmddp.worker.task import Task

ENDLESS = 2**20
"""Epochs."""


def make_long(options: WorkerOptions, times: int, shape: dict[str, int] | None = None) -> Task:
    """Return a bundled task on synthetic data, repeated; without a test set, which only the worker would measure.

    A shape is that of a decoder in place of the task's model.
    """
    task: Any = make_task(options)
    longer = (each.repeat(times, *[1] * (each.dim() - 1)) for each in (task.train.inputs, task.train.targets))
    task.train = type(task.train)(*longer)
    task.test = None
    if shape:
        task.model = lambda: Decoder(**shape)
    return task  # type: ignore[no-any-return]  # Any for the samples' own attributes


@dataclass(frozen=True)
class Blocks:
    """Steps of a loop, a block at a time."""

    bench: Bench
    steps: int

    def of_worker(self, training: Training) -> Iterator[None]:
        """Take a block each time the next is asked for, and wait for its end; lines of epochs are not shown."""
        steps = training.steps()
        while True:
            with contextlib.redirect_stdout(io.StringIO()):
                for _ in range(self.steps):
                    next(steps)
            self.bench.finish()
            yield


def options_for(task: str, batch_size: int, **more: Any) -> WorkerOptions:
    return WorkerOptions(task=task, data="synthetic", batch_size=batch_size, lr=1e-3, epochs=ENDLESS, **more)


def train(ddp: Session, task: Task) -> Training:
    """Return the worker's training; that it has no folder for checkpoints is not shown."""
    with contextlib.redirect_stdout(io.StringIO()):
        return Training(ddp, task.options, task)
