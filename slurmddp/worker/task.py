"""What the bundled worker trains: a model, its data, and what counts as an error. Subclass `Task` for your own."""

from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError


class Examples(Protocol):
    """Samples, as torch's map-style Dataset has them."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return a sample: an input and its target."""
        ...


@runtime_checkable
class Batched(Examples, Protocol):
    """Samples that are taken many at a time, on the device; no loader processes serve them."""

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples at `indices`, int64 of shape [samples] on the data's device."""
        ...

    def to(self, device: torch.device) -> "Batched":
        """Return the same samples on a device."""
        ...


class Task:
    """A training that `--task package.module:Class` names; made once on every rank."""

    train: Examples
    """What is trained on; `__init__` sets it."""
    test: Examples | None = None
    """What the model is measured on after each epoch; None for nothing."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options

    @classmethod
    def prepare(cls, options: WorkerOptions) -> None:
        """Look for the data, or fetch it, where the job is submitted; raise UsageError when it cannot be had."""

    def model(self) -> nn.Module:
        """Return a fresh model on the CPU, drawn from torch's default generator."""
        raise NotImplementedError

    def losses(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of each sample, of shape [samples]."""
        raise NotImplementedError

    def metrics(self, outputs: Any, targets: Tensor) -> dict[str, Tensor]:
        """Return numbers of each sample, of shape [samples], by name; their means over `test` are reported."""
        del outputs, targets
        return {}

    def transform(self, inputs: Tensor) -> Tensor:
        """Return a training batch's inputs as the model is to see them: augmentation, by torch's default generator."""
        return inputs

    def report(self, model: nn.Module) -> str | None:
        """Return a line on the trained model, which is the plain one, on the CPU."""
        del model
        return None


class InMemory:
    """Samples that are held in memory as two tensors, whose first dimension is the sample.

    Raises UsageError for more of the ones than of the others.
    """

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise UsageError(f"InMemory: {len(inputs)} inputs and {len(targets)} targets; each input needs one target")
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a sample."""
        return self.inputs[index], self.targets[index]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples at `indices`, int64 of shape [samples] on the data's device."""
        return self.inputs[indices], self.targets[indices]

    def to(self, device: torch.device) -> Self:
        """Return the same samples on a device."""
        return type(self)(self.inputs.to(device), self.targets.to(device))
