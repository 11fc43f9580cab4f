"""What the tasks share that tell images apart: loss, accuracy, and images that are made up."""

import torch
from torch import Tensor
from torch.nn import functional

from slurmddp.worker.task import Task

NOISE = 64
"""Standard deviation of the noise on a pixel, of 256 grey levels."""
GRID = 4
"""Patches of a made-up image, each way."""


class Classifying(Task):
    """Tell classes apart: scores (samples, classes) against class numbers (samples)."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return functional.cross_entropy(outputs, targets, reduction="none")

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return whether the likeliest class is the right one."""
        return {"accuracy": outputs.argmax(dim=1) == targets}


def made_up(*sizes: int, shape: tuple[int, ...], classes: int = 10, seed: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return sets of so many images (samples, *shape) and their classes (samples), both uint8.

    They are noisy copies of one random image a class, of GRID times GRID patches, so that a shifted one is still like
    its original. Height and width, the last of `shape`, are multiples of GRID.
    """
    generator = torch.Generator().manual_seed(seed)
    originals = torch.randint(256, (classes, *shape[:-2], GRID, GRID), generator=generator)
    for axis in (-2, -1):
        originals = originals.repeat_interleave(shape[axis] // GRID, dim=axis)

    def draw(samples: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(classes, (samples,), generator=generator)
        noisy = originals[labels] + NOISE * torch.randn(samples, *shape, generator=generator)
        return noisy.clamp(0, 255).to(torch.uint8), labels.to(torch.uint8)

    return tuple(draw(samples) for samples in sizes)
