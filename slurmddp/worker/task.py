"""The interface of what the bundled worker trains: a model, its data, its loss. Subclass `Task` for your own."""

from __future__ import annotations
from collections.abc import Sized
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError


class Examples(Sized, Protocol):
    """Samples with the interface of torch's map-style Dataset."""

    def __getitem__(self, index: int, /) -> Any:
        """Return a sample: an input and its target."""


@runtime_checkable
class Batched(Examples, Protocol):
    """Samples that are read in batches on the device, without loader processes."""

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples at `indices`, int64 of shape [samples] on the data's device."""

    def to(self, device: torch.device) -> Batched:
        """Return the same samples on a device."""


class Task:
    """A training that `--task package.module:Class` names; each rank creates one."""

    train: Examples
    """The training samples; `__init__` sets them."""
    test: Examples | None = None
    """The test samples, measured after each epoch; None for no test."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options

    @classmethod
    def prepare(cls, options: WorkerOptions) -> None:
        """Check or fetch the data, where the job is submitted; raise UsageError when this fails."""

    def model(self) -> nn.Module:
        """Return a new model on the CPU, initialized by torch's default generator."""
        raise NotImplementedError

    def losses(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of each sample, of shape [samples]."""
        raise NotImplementedError

    def metrics(self, outputs: Any, targets: Tensor) -> dict[str, Tensor]:
        """Return tensors of shape [samples] by name; their means over `test` are reported."""
        del outputs, targets
        return {}

    def transform(self, inputs: Tensor) -> Tensor:
        """Return the model's inputs for a training batch: augment them, by torch's default generator."""
        return inputs


class InMemory:
    """Samples in memory as two tensors, whose first dimension is the sample.

    Raises UsageError when the numbers of inputs and targets differ.
    """

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise UsageError(f"InMemory: {len(inputs)} inputs and {len(targets)} targets; each input needs one target")
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a sample, as `batch` has it."""
        inputs, targets = self.batch(torch.tensor([index], device=self.inputs.device))
        return inputs[0], targets[0]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples at `indices`, int64 of shape [samples] on the data's device."""
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices)

    def to(self, device: torch.device) -> InMemory:
        """Return the same samples on a device."""
        return type(self)(self.inputs.to(device), self.targets.to(device))
