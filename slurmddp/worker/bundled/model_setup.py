"""What the options make of a model: its wrapper, its optimizer and learning rate, the precision of the arithmetic."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.config.worker_options import WorkerOptions

_CLASSES: Final[dict[str, type[torch.optim.Optimizer]]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
_LOWER: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def wrap(model: nn.Module, options: WorkerOptions, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return the wrapped model on its device."""
    model = model.to(device, dtype)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch declares no such form
    if options.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    if options.strategy == "fsdp":
        _shard(model, options, device)
        if options.compile:
            model.compile()
        return model
    if options.compile:
        model = torch.compile(model)  # type: ignore[assignment]  # a module, by another name
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        bucket_cap_mb=options.bucket_mb,
        find_unused_parameters=options.find_unused_parameters,
    )


def _shard(model: nn.Module, options: WorkerOptions, device: torch.device) -> None:
    """Shard each layer of the outermost lists of layers separately, so that one layer at a time is gathered."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - with the next, 0.8 s in each rank
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415 - as above

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    lower = torch.bfloat16 if options.precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=lower, reduce_dtype=torch.float32 if lower else None)
    for layer in _layers(model):
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of the outermost lists of layers; inner lists would be sharded twice."""
    for part in model.children():
        yield from part if isinstance(part, (nn.ModuleList, nn.Sequential)) else _layers(part)


def sync_gradients(model: nn.Module, *, last: bool) -> contextlib.AbstractContextManager[Any]:
    """Return the context of a batch's forward and backward: only the last batch of a step all-reduces gradients."""
    if isinstance(model, DistributedDataParallel):
        return contextlib.nullcontext() if last else model.no_sync()
    set_sync = getattr(model, "set_requires_gradient_sync", None)  # of a model that fully_shard has divided
    if set_sync is not None:
        set_sync(last)
    return contextlib.nullcontext()


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
        # With fully_shard the weights themselves are cast (see `_shard`).
        self._lower = None if options.strategy == "fsdp" else _LOWER.get(options.precision)
        self.dtype = torch.float64 if options.precision == "fp64" else torch.float32
        """Of the weights and the inputs."""
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")

    def cast(self, inputs: torch.Tensor) -> torch.Tensor:
        """Convert floating-point inputs to the type of the weights; integers, such as tokens, stay."""
        return inputs.to(self.dtype) if inputs.is_floating_point() else inputs

    def forward(self) -> torch.autocast:
        """Return the context for the forward pass and the loss."""
        return torch.autocast(self._device.type, self._lower, enabled=self._lower is not None)
