"""What the options make of a model: its wrapper, its optimizer and learning rate, the precision of the arithmetic."""

import math
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.config.worker_options import WorkerOptions

_CLASSES: Final[dict[str, type[torch.optim.Optimizer]]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
_LOWER: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def wrap(model: nn.Module, options: WorkerOptions, device: torch.device, dtype: torch.dtype) -> DistributedDataParallel:
    """Return the wrapped model on its device."""
    model = model.to(device, dtype)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch declares no such form
    if options.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    if options.compile:
        model = torch.compile(model)  # type: ignore[assignment]  # a module, by another name
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        bucket_cap_mb=options.bucket_mb,
        find_unused_parameters=options.find_unused_parameters,
    )


def make_optimizer(parameters: Iterable[nn.Parameter], options: WorkerOptions) -> torch.optim.Optimizer:
    """Return the optimizer of these options."""
    settings: dict[str, Any] = {"lr": options.lr, "weight_decay": options.weight_decay}
    if options.optimizer == "sgd":
        settings["momentum"] = options.momentum
    return _CLASSES[options.optimizer](parameters, **settings)


def scaled_rate(options: WorkerOptions, world_size: int) -> float:
    """Return the learning rate after warm-up, where `lr` is the rate for one rank's batch.

    The linear rule is that of Goyal et al., "Accurate, Large Minibatch SGD" (2017); the square root's, that of
    Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014).
    """
    batches = world_size * options.accumulate
    return options.lr * {"none": 1.0, "linear": float(batches), "sqrt": math.sqrt(batches)}[options.lr_scaling]


def scheduled_rate(options: WorkerOptions, world_size: int, *, step: int, progress: float) -> float:
    """Return the learning rate of step `step`, counted from 0; `progress` is the share of samples taken (0 to 1)."""
    warm = min(1.0, (step + 1) / options.warmup_steps) if options.warmup_steps else 1.0
    fall = {"constant": 1.0, "linear": 1.0 - progress, "cosine": (1.0 + math.cos(math.pi * progress)) / 2}
    return scaled_rate(options, world_size) * warm * fall[options.schedule]


class Precision:
    """The arithmetic of the steps: fp32, fp64, or mixed with bf16 or fp16."""

    def __init__(self, options: WorkerOptions, device: torch.device) -> None:
        self._device = device
        self._lower = _LOWER.get(options.precision)
        self.dtype = torch.float64 if options.precision == "fp64" else torch.float32
        """Of the weights and the inputs."""
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")

    def cast(self, inputs: torch.Tensor) -> torch.Tensor:
        """Convert floating-point inputs to the type of the weights; integers, such as tokens, stay."""
        return inputs.to(self.dtype) if inputs.is_floating_point() else inputs

    def forward(self) -> torch.autocast:
        """Return the context for the forward pass and the loss."""
        return torch.autocast(self._device.type, self._lower, enabled=self._lower is not None)
