"""Image classification: MNIST and similar grey images, CIFAR-10 by ResNet-18, and what all such tasks share."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.data.readers import CIFAR_CLASSES, CIFAR_SIZE, read_cifar, read_pair
from slurmddp.worker.task import InMemory, Task

NOISE = 64
"""Standard deviation of the noise on a pixel, of 256 grey levels."""
GRID = 4
"""Patches of a synthetic image in each direction."""
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of each stage of ResNet-18; a stage has two blocks."""
SMALLEST_IMAGE = 4
LARGE_IMAGE = 16
PADDING = 4
"""Pixels by which a training image is shifted at most (He et al., 2015, section 4.2)."""


class Classification(Task):
    """Classify samples: scores (samples, classes) against class numbers (samples)."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return functional.cross_entropy(outputs, targets, reduction="none")

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return whether the class with the highest score is the target."""
        return {"accuracy": outputs.argmax(dim=1) == targets}


class ColourImages(InMemory):
    """Colour images in memory as bytes; a batch is normalized to floats around 0."""

    mean: ClassVar = (0.485 * 255, 0.456 * 255, 0.406 * 255)
    """Of ImageNet's red, green and blue, from 0 to 255."""
    deviation: ClassVar = (0.229 * 255, 0.224 * 255, 0.225 * 255)

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        super().__init__(inputs, targets)
        self._mean, self._deviation = (
            torch.tensor(rgb, device=inputs.device).view(3, 1, 1) for rgb in (self.mean, self.deviation)
        )

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (samples, 3, height, width) and their classes (samples)."""
        inputs, targets = super().batch(indices)
        return (inputs - self._mean) / self._deviation, targets.long()


class Mnist(Classification):
    """Classify small grey images: MNIST, Fashion-MNIST, the digits that come with slurmddp.

    The small convolutional net has no buffers, so that any number of ranks gives the same result.
    """

    SYNTHETIC_SIZE, SYNTHETIC_SAMPLES = 28, (4096, 512)

    train: InMemory
    test: InMemory

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        files, shape = find_data(options), (self.SYNTHETIC_SIZE, self.SYNTHETIC_SIZE)
        if files is None:
            train, test = synthesize(*self.SYNTHETIC_SAMPLES, shape=shape, seed=options.seed)
        else:
            train, test = read_pair(*files[:2]), read_pair(*files[2:])
            pixels, of_test = (tuple(images.shape[1:]) for images, _ in (train, test))
            if pixels != of_test:
                raise UsageError(f"{files[0]} holds images of {pixels} pixels, but {files[2]} of {of_test}")
            if min(pixels) < SMALLEST_IMAGE:
                least = f"the least is {SMALLEST_IMAGE} in each direction"
                raise UsageError(f"{files[0]} holds images of {pixels} pixels; {least}")
        mean, deviation = train[0].float().mean(), train[0].float().std().clamp(min=1.0)
        self.train = InMemory(((train[0] - mean) / deviation).unsqueeze(1), train[1].long())
        self.test = InMemory(((test[0] - mean) / deviation).unsqueeze(1), test[1].long())
        self._classes = int(torch.cat((self.train.targets, self.test.targets)).max()) + 1

    def model(self) -> nn.Module:
        """Return three convolutions and a linear layer; with large images the first convolution has stride 2."""
        height, width = self.train.inputs.shape[2:]
        stride, channels = (2, 16) if min(height, width) >= LARGE_IMAGE else (1, 32)
        convolutions = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, stride=stride),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * channels, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        for layer in convolutions:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        features = convolutions(torch.zeros(1, 1, height, width)).shape[1]
        return nn.Sequential(*convolutions, nn.Linear(features, self._classes))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outward),
            nn.ReLU(),
            nn.Conv2d(outward, outward, 3, padding=1, bias=False),
            nn.BatchNorm2d(outward),
        )
        self.around: nn.Module = nn.Identity()
        if inward != outward:
            projection = nn.Conv2d(inward, outward, 1, stride=stride, bias=False)
            self.around = nn.Sequential(projection, nn.BatchNorm2d(outward))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, outward, height / stride, width / stride)."""
        return torch.relu(self.residual(inputs) + self.around(inputs))


def resnet18(classes: int) -> nn.Module:
    """Return ResNet-18 (He et al., 2015): images (samples, 3, height, width) to scores (samples, classes).

    As in the paper's networks for CIFAR-10, the first convolution is 3x3 and no pooling comes before the blocks.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inward = 64
    for channels, stride in STAGES:
        layers += [ResidualBlock(inward, channels, stride), ResidualBlock(channels, channels, 1)]
        inward = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, classes))


class CifarImages(ColourImages):
    """Images normalized as CIFAR-10 (from the code of Zagoruyko and Komodakis, Wide Residual Networks, 2016)."""

    mean: ClassVar = (125.3, 123.0, 113.9)
    deviation: ClassVar = (63.0, 62.1, 66.7)


class Cifar10(Classification):
    """Classify small colour images; training images are shifted and mirrored at random."""

    SYNTHETIC_SAMPLES = 512, 128

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        files = find_data(options)
        if files:
            train, test = read_cifar(files[:-1]), read_cifar(files[-1:])
        else:
            shape = (3, CIFAR_SIZE, CIFAR_SIZE)
            train, test = synthesize(*self.SYNTHETIC_SAMPLES, shape=shape, classes=CIFAR_CLASSES, seed=options.seed)
        self.train, self.test = CifarImages(*train), CifarImages(*test)

    def model(self) -> nn.Module:
        """Return a fresh ResNet-18."""
        return resnet18(CIFAR_CLASSES)

    def transform(self, inputs: Tensor) -> Tensor:
        """Return the images shifted by up to PADDING pixels in each direction; half of them are mirrored."""
        return mirror(shift(inputs, PADDING))


def synthesize(*sizes: int, shape: tuple[int, ...], classes: int = 10, seed: int) -> tuple[tuple[Tensor, Tensor], ...]:
    """Return a set of synthetic images (samples, *shape) and classes (samples) for each of `sizes`, all uint8.

    The images are noisy copies of one random image for each class. That consists of GRID times GRID patches, so that a
    shifted copy still resembles it. Height and width, the last of `shape`, must be multiples of GRID.
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


def shift(images: Tensor, most: int) -> Tensor:
    """Shift each image (samples, channels, height, width) by up to `most` pixels in each direction; fill with zeros."""
    padded = functional.pad(images, (most, most, most, most))
    return crop(padded, (images.shape[2], images.shape[3]))


def crop(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a part of size (height, width) at a random position of each image (samples, channels, height, width)."""
    each = torch.arange(len(images), device=images.device).view(-1, 1, 1)
    rows, columns = (
        torch.randint(whole - length + 1, (len(images), 1), device=images.device)
        + torch.arange(length, device=images.device)
        for whole, length in zip(images.shape[2:], size)
    )
    return images[each, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def mirror(images: Tensor) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    heads = torch.randint(2, (len(images), 1, 1, 1), device=images.device, dtype=torch.bool)
    return torch.where(heads, images.flip(3), images)
