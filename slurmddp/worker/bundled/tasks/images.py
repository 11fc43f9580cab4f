"""Small grey images in IDX files: the digits that travel with slurmddp, MNIST, Fashion-MNIST and the like."""

from pathlib import Path

import torch
from torch import Tensor, nn

from slurmddp.config.datasets import check, find_idx
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.data.idx import read_pair
from slurmddp.worker.bundled.tasks.classifying import Classifying, made_up
from slurmddp.worker.task import InMemory

SMALLEST_IMAGE = 4
LARGE_IMAGE = 16


class Images(Classifying):
    """Classify small grey images with a small convolutional net, without buffers: any split of ranks agrees."""

    SYNTHETIC_SIZE, SYNTHETIC_TRAIN, SYNTHETIC_TEST = 28, 4096, 512

    train: InMemory
    test: InMemory

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        folder = check(options)
        train, test = self._synthetic() if folder is None else _read(folder)
        mean, deviation = train[0].float().mean(), train[0].float().std().clamp(min=1.0)
        self.train = InMemory(((train[0] - mean) / deviation).unsqueeze(1), train[1].long())
        self.test = InMemory(((test[0] - mean) / deviation).unsqueeze(1), test[1].long())
        self._classes = int(torch.cat((self.train.targets, self.test.targets)).max()) + 1

    def _synthetic(self) -> tuple[tuple[Tensor, Tensor], ...]:
        shape = (self.SYNTHETIC_SIZE, self.SYNTHETIC_SIZE)
        return made_up(self.SYNTHETIC_TRAIN, self.SYNTHETIC_TEST, shape=shape, seed=self.options.seed)

    def model(self) -> nn.Module:
        """Return three convolutions and a linear layer; large images get a coarser first layer."""
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


def _read(folder: Path) -> tuple[tuple[Tensor, Tensor], ...]:
    files = [*find_idx(folder).values()]
    train, test = read_pair(*files[:2]), read_pair(*files[2:])
    sizes = [tuple(images.shape[1:]) for images, _ in (train, test)]
    if sizes[0] != sizes[1]:
        raise UsageError(f"{files[0]} holds images of {sizes[0]} pixels, but {files[2]} of {sizes[1]}")
    if min(sizes[0]) < SMALLEST_IMAGE:
        raise UsageError(f"{files[0]} holds images of {sizes[0]} pixels; the least is {SMALLEST_IMAGE} each way")
    return train, test
