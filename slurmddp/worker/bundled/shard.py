"""Divides a model among the ranks by fully_shard (FSDP2)."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from slurmddp.config.worker_options import WorkerOptions


def shard(model: nn.Module, options: WorkerOptions, device: torch.device) -> None:
    """Shard each layer of the outermost lists of layers separately, so that one layer at a time is gathered."""
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
        yield from part if isinstance(part, nn.ModuleList | nn.Sequential) else _layers(part)
