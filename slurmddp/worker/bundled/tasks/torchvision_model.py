"""torchvision's classification models: `--task torchvision:resnet50` on a folder of images, or on synthetic ones."""

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from slurmddp.config.datasets import find_data
from slurmddp.config.option_types import unknown
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.errors import UsageError
from slurmddp.worker.bundled.tasks.classification import Classification, ColourImages, crop, mirror, synthesize
from slurmddp.worker.task import Examples

LARGER, SIZE = 256, 224
"""Pixels of a training image in each direction, and of the part that the model gets (Krizhevsky et al., 2012)."""
ONE_OUTPUT: Final[dict[str, dict[str, Any]]] = {
    "googlenet": {"aux_logits": False, "init_weights": True},
    "inception_v3": {"aux_logits": False, "init_weights": True},
}
"""Arguments that give a model one output in training in place of several."""


class TorchvisionModel(Classification):
    """Classify images with a model of torchvision; it trains on a random part of each image, half of them mirrored."""

    SYNTHETIC_SAMPLES, SYNTHETIC_CLASSES = (128, 32), 10

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        self._model_name = model_name(options.task)
        folders = find_data(options)
        if folders is not None:
            self.train, self.test, self._classes = _read(folders)
            return
        from torchvision.transforms.functional import center_crop  # noqa: PLC0415 - an extra

        self._classes, shape = self.SYNTHETIC_CLASSES, (3, LARGER, LARGER)
        train, (images, classes) = synthesize(
            *self.SYNTHETIC_SAMPLES, shape=shape, classes=self._classes, seed=options.seed
        )
        self.train, self.test = ColourImages(*train), ColourImages(center_crop(images, [SIZE, SIZE]), classes)

    @classmethod
    def prepare(cls, options: WorkerOptions) -> None:
        """Check that torchvision is installed and has the model."""
        model_name(options.task)

    def model(self) -> nn.Module:
        """Return the model with fresh weights and a score for each class."""
        from torchvision.models import get_model  # noqa: PLC0415 - an extra

        model: nn.Module = get_model(
            self._model_name, weights=None, num_classes=self._classes, **ONE_OUTPUT.get(self._model_name, {})
        )
        return model

    def transform(self, inputs: Tensor) -> Tensor:
        """Return a random part of SIZE pixels in each direction of each image, half of them mirrored."""
        return mirror(crop(inputs, (SIZE, SIZE)))


def model_name(task: str) -> str:
    """Return the model that a task `torchvision:MODEL` names.

    Raises UsageError when torchvision is not installed or cannot be used, or has no such model.
    """
    try:
        from torchvision import models  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(f"--task {task} needs torchvision; type: pip install 'slurmddp[vision]'") from error
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"--task {task}: torchvision does not fit torch {torch.__version__}: {error}") from error
    name = task.partition(":")[2]
    known = models.list_models(module=models)
    if name not in known:
        raise unknown(name, known, "torchvision", what="model")
    return name


def _read(folders: list[Path]) -> tuple[Examples, Examples, int]:
    """Return the images to train on, those to measure on, and the number of classes."""
    from torchvision import transforms  # noqa: PLC0415 - an extra
    from torchvision.datasets import ImageFolder  # noqa: PLC0415 - an extra

    mean, deviation = ([value / 255 for value in rgb] for rgb in (ColourImages.mean, ColourImages.deviation))
    sets = []
    try:
        for path, size in zip(folders, (LARGER, SIZE)):  # from an image of any size to its centre
            steps = [transforms.Resize(LARGER), transforms.CenterCrop(size), transforms.ToTensor()]
            normalize = transforms.Normalize(mean, deviation)
            sets.append(ImageFolder(str(path), transforms.Compose([*steps, normalize])))
    except FileNotFoundError as error:
        raise UsageError(f"--data {folders[0].parent}: {error}") from error
    train, test = sets
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise UsageError(
            f"--data {folders[0].parent}: train and val must have the same classes; only one of them has {odd[0]}"
        )
    return train, test, len(train.classes)
