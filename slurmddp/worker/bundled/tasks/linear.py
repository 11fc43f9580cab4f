"""Linear regression that recovers known weights: the smallest proof that gradients are averaged right."""

import torch
from torch import Tensor, nn

from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.task import InMemory, Task


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
