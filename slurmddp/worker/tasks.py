"""The bundled tasks: a model, its data, and what counts as an error."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from slurmddp.errors import UsageError
from slurmddp.worker.files import check, find_idx
from slurmddp.worker.idx import read_pair
from slurmddp.worker.options import WorkerOptions
from slurmddp.worker.task import InMemory, Task

SMALLEST_IMAGE = 4
LARGE_IMAGE = 16


class Linear(Task):
    """Recover the weights and the bias of y = Wx + b."""

    FEATURES, OUTPUTS, TRAIN, TEST = 8, 2, 4096, 512

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        generator = torch.Generator().manual_seed(options.seed)
        self._weight = torch.randn(self.OUTPUTS, self.FEATURES, generator=generator)
        self._bias = torch.randn(self.OUTPUTS, generator=generator)
        self.train = self._draw(self.TRAIN, generator)
        self.test = self._draw(self.TEST, generator)

    def _draw(self, samples: int, generator: torch.Generator) -> InMemory:
        inputs = torch.randn(samples, self.FEATURES, generator=generator)
        return InMemory(inputs, inputs @ self._weight.T + self._bias)

    def model(self) -> nn.Module:
        """Return one linear layer."""
        return nn.Linear(self.FEATURES, self.OUTPUTS)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error of each sample."""
        return (outputs - targets).square().mean(dim=1)

    def report(self, model: nn.Module) -> str:
        """Return how far the weights are from the true ones."""
        state = {name: value.cpu() for name, value in model.state_dict().items()}
        errors = ((state["weight"] - self._weight).abs().max(), (state["bias"] - self._bias).abs().max())
        return f"largest error of the weights: {float(max(errors)):.3g}"


class Images(Task):
    """Classify small grey images with a small convolutional net, without buffers: any split of ranks agrees."""

    SYNTHETIC_CLASSES, SYNTHETIC_SIZE, SYNTHETIC_TRAIN, SYNTHETIC_TEST = 10, 28, 4096, 512

    train: InMemory
    test: InMemory

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        folder = check(options)
        train, test = self._synthetic(options.seed) if folder is None else self._read(folder)
        mean, deviation = train[0].float().mean(), train[0].float().std().clamp(min=1.0)
        self.train = InMemory(((train[0] - mean) / deviation).unsqueeze(1), train[1].long())
        self.test = InMemory(((test[0] - mean) / deviation).unsqueeze(1), test[1].long())
        self._classes = int(torch.cat((self.train.targets, self.test.targets)).max()) + 1

    def _read(self, folder: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        files = [*find_idx(folder).values()]
        train, test = read_pair(*files[:2]), read_pair(*files[2:])
        sizes = [tuple(images.shape[1:]) for images, _ in (train, test)]
        if sizes[0] != sizes[1]:
            raise UsageError(f"{files[0]} holds images of {sizes[0]} pixels, but {files[2]} of {sizes[1]}")
        if min(sizes[0]) < SMALLEST_IMAGE:
            raise UsageError(f"{files[0]} holds images of {sizes[0]} pixels; the least is {SMALLEST_IMAGE} each way")
        return train, test

    def _synthetic(self, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return noisy copies of one random image a class."""
        generator = torch.Generator().manual_seed(seed)
        size = (self.SYNTHETIC_SIZE, self.SYNTHETIC_SIZE)
        originals = torch.randint(0, 256, (self.SYNTHETIC_CLASSES, *size), generator=generator).float()

        def draw(samples: int) -> tuple[Tensor, Tensor]:
            labels = torch.randint(0, self.SYNTHETIC_CLASSES, (samples,), generator=generator)
            return originals[labels] + 64 * torch.randn(samples, *size, generator=generator), labels

        return draw(self.SYNTHETIC_TRAIN), draw(self.SYNTHETIC_TEST)

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

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return whether the likeliest class is the right one."""
        return {"accuracy": outputs.argmax(dim=1) == targets}


TASKS: dict[str, Callable[[WorkerOptions], Task]] = {"linear": Linear, "mnist": Images}


def make_task(options: WorkerOptions) -> Task:
    """Return the task that was asked for.

    Raises UsageError when its data is missing or broken.
    """
    check(options)
    return TASKS[options.task](options)
