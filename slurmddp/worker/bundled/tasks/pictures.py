"""Colour images in memory, and what training does to a batch of them at random, by torch's default generators."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from slurmddp.worker.task import InMemory


class Pictures(InMemory):
    """Colour images that lie in memory as bytes; a batch of them is made numbers around 0."""

    mean: ClassVar = (0.485 * 255, 0.456 * 255, 0.406 * 255)
    """Of red, green and blue, in grey levels; ImageNet's."""
    deviation: ClassVar = (0.229 * 255, 0.224 * 255, 0.225 * 255)

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        super().__init__(inputs, targets)
        self._mean, self._deviation = (
            torch.tensor(rgb, device=inputs.device).view(3, 1, 1) for rgb in (self.mean, self.deviation)
        )

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return an image (3, height, width) and its class."""
        inputs, targets = self.batch(torch.tensor([index], device=self.inputs.device))
        return inputs[0], targets[0]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (samples, 3, height, width) and their classes (samples)."""
        inputs, targets = super().batch(indices)
        return (inputs - self._mean) / self._deviation, targets.long()


def shifted(images: Tensor, most: int) -> Tensor:
    """Return images (samples, channels, height, width) each moved by up to `most` pixels each way; zeros move in."""
    padded = functional.pad(images, (most, most, most, most))
    return part(padded, (images.shape[2], images.shape[3]))


def part(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Return of each image (samples, channels, height, width) a part of a size (height, width) anywhere in it."""
    each = torch.arange(len(images), device=images.device).view(-1, 1, 1)
    rows, columns = (
        torch.randint(whole - length + 1, (len(images), 1), device=images.device)
        + torch.arange(length, device=images.device)
        for whole, length in zip(images.shape[2:], size, strict=True)
    )
    return images[each, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def mirrored(images: Tensor) -> Tensor:
    """Return the images, each with its left and right exchanged by the toss of a coin."""
    heads = torch.randint(2, (len(images), 1, 1, 1), device=images.device, dtype=torch.bool)
    return torch.where(heads, images.flip(3), images)
