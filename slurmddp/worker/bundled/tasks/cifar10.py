"""CIFAR-10 with ResNet-18: small colour images in ten classes."""

from typing import ClassVar

from torch import Tensor, nn

from slurmddp.config.datasets import check, find_cifar
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.data.cifar import CLASSES, SIZE, read_cifar
from slurmddp.worker.bundled.tasks.classifying import Classifying, made_up
from slurmddp.worker.bundled.tasks.pictures import Pictures, mirrored, shifted
from slurmddp.worker.bundled.tasks.resnet import resnet18

PADDING = 4
"""Pixels that a training image may be off, each way (He et al., 2015, section 4.2)."""


class CifarPictures(Pictures):
    """Images around the mean of CIFAR-10's (Zagoruyko and Komodakis, Wide Residual Networks, 2016, its code)."""

    mean: ClassVar = (125.3, 123.0, 113.9)
    deviation: ClassVar = (63.0, 62.1, 66.7)


class Cifar10(Classifying):
    """Classify small colour images; training images are shifted and mirrored at random."""

    SYNTHETIC_TRAIN, SYNTHETIC_TEST = 512, 128

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        train, test = self._read()
        self.train, self.test = CifarPictures(*train), CifarPictures(*test)

    def _read(self) -> tuple[tuple[Tensor, Tensor], ...]:
        folder = check(self.options)
        if folder is None:
            sizes, shape = (self.SYNTHETIC_TRAIN, self.SYNTHETIC_TEST), (3, SIZE, SIZE)
            return made_up(*sizes, shape=shape, classes=CLASSES, seed=self.options.seed)
        *train, test = find_cifar(folder)
        return read_cifar(train), read_cifar([test])

    def model(self) -> nn.Module:
        """Return a fresh ResNet-18."""
        return resnet18(CLASSES)

    def transform(self, inputs: Tensor) -> Tensor:
        """Return the images shifted by up to PADDING pixels each way, and half of them mirrored."""
        return mirrored(shifted(inputs, PADDING))
