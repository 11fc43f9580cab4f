"""Collects and restores the states of a training's parts: those that all ranks share, and each rank's own. No files.

The model's entries have the names of the plain module, without `module.` of DistributedDataParallel or DataParallel
and without `_orig_mod.` of torch.compile. So `torch.load(".../model.pt")` fits the model of the training script.
"""

import io
import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.errors import RankError

State = dict[str, Any]


class Stateful(Protocol):
    """An object with a state: an optimizer, a scheduler, a scaler, a sampler, a module."""

    def state_dict(self) -> State:
        """Return the state, of plain values and tensors."""
        ...

    def load_state_dict(self, state_dict: State) -> Any:
        """Restore a state."""
        ...


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module inside the wrappers of data parallelism and torch.compile."""
    while True:
        if isinstance(module, DistributedDataParallel | nn.DataParallel):
            module = module.module
        elif hasattr(module, "_orig_mod"):
            module = module._orig_mod  # type: ignore[assignment]  # noqa: SLF001 - torch.compile's only name for it
        else:
            return module


def state_of(part: Stateful) -> State:
    """Return a part's state; of a ZeroRedundancyOptimizer only this rank's, numbered as in the whole optimizer."""
    if is_zero(part):
        return _zero_state(part)
    return (unwrap(part) if isinstance(part, nn.Module) else part).state_dict()


def full_state_dict(model: nn.Module) -> State:
    """Return the model's whole state on rank 0, as plain tensors in host memory; an empty dict on the other ranks.

    It fits the plain model, which is not wrapped, compiled or sharded. All ranks call this together.
    """
    main = not dist.is_initialized() or dist.get_rank() == 0
    whole: State = {}
    for name, value in unwrap(model).state_dict().items():
        gathered = value.to(value.device_mesh.device_type).full_tensor() if _is_dtensor(value) else value
        if main:
            whole[name] = gathered.detach().cpu() if isinstance(gathered, Tensor) else gathered
    return whole


def collect(parts: Mapping[str, Stateful]) -> State:
    """Return the state of each part, by name."""
    return {name: state_of(part) for name, part in parts.items()}


def is_zero(part: Any) -> bool:
    """Tell whether a part is a ZeroRedundancyOptimizer."""
    return _is(part, "torch.distributed.optim.zero_redundancy_optimizer", "ZeroRedundancyOptimizer")


def is_divided(part: Stateful) -> bool:
    """Tell whether each rank holds only pieces of a part's state.

    Raises RankError for a FullyShardedDataParallel, whose state would be gathered on every rank.
    """
    inner = part.modules() if isinstance(part, nn.Module) else ()
    if any(_is(module, "torch.distributed.fsdp", "FullyShardedDataParallel") for module in inner):
        raise RankError("a FullyShardedDataParallel cannot be saved; use torch.distributed.fsdp.fully_shard instead")
    return is_zero(part) or any(map(_is_dtensor, _tensors(part)))


def _is_dtensor(value: Any) -> bool:
    return _is(value, "torch.distributed.tensor", "DTensor")


def _is(value: Any, module: str, name: str) -> bool:
    """Tell whether a value is an instance of a class, without importing the class's module."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _tensors(part: Stateful) -> list[Any]:
    if isinstance(part, torch.optim.Optimizer):
        return [parameter for group in part.param_groups for parameter in group["params"]]
    return list(_leaves(state_of(part)))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _zero_state(zero: Any) -> State:
    if not hasattr(zero, "optim"):
        raise RankError("a ZeroRedundancyOptimizer with overlap_with_ddp=True cannot be saved; leave that option out")
    parameters = [parameter for group in zero.param_groups for parameter in group["params"]]
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    state = {numbers[id(parameter)]: dict(values) for parameter, values in zero.optim.state.items()}
    return {"state": state, "param_groups": torch.optim.Optimizer.state_dict(zero)["param_groups"]}


def restore(parts: Mapping[str, Stateful], state: State) -> None:
    """Restore each part; raise RankError when `state` has no entry for a part, or the entry does not fit."""
    for name, part in parts.items():
        if name not in state:
            raise RankError(f"the checkpoint holds no {name}; it has {', '.join(state)}; --reset starts over")
        try:
            (unwrap(part) if isinstance(part, nn.Module) else part).load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            what = " ".join(str(error).split())
            raise RankError(f"the checkpoint does not fit this {name}: {what}; --reset starts over") from error
        if is_zero(part):
            part.state.clear()  # type: ignore[attr-defined]  # a second copy, which no step reads
        elif isinstance(part, torch.optim.Optimizer):
            _keep_precision(part, state[name])


def _keep_precision(optimizer: torch.optim.Optimizer, saved: State) -> None:
    """Restore the saved precision where torch has rounded to that of the parameters: fp32 masters of bf16 weights."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for key, value in saved["state"].get(number, {}).items():
            loaded = optimizer.state[parameter].get(key)
            if isinstance(value, Tensor) and isinstance(loaded, Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][key] = value.to(loaded.device)


def collect_own(modules: Mapping[str, nn.Module], own: Mapping[str, Stateful], device: torch.device) -> State:
    """Return the state of this rank only: random numbers, buffers, communication hooks, and `own`."""
    return {
        "random": _random(device),
        "buffers": {name: _buffers(module) for name, module in modules.items()},
        "hooks": {name: [_hook_state(state) for state in _hooks(module)] for name, module in modules.items()},
        "own": collect(own),
    }


def restore_own(
    modules: Mapping[str, nn.Module], own: Mapping[str, Stateful], device: torch.device, state: State
) -> None:
    """Restore what `collect_own` returned, except the random numbers."""
    for name, module in modules.items():
        buffers = state["buffers"].get(name, {})
        for path, buffer in unwrap(module).named_buffers():
            if path in buffers:
                buffer.copy_(buffers[path])
        for hook, saved in zip(_hooks(module), state["hooks"].get(name, []), strict=False):
            _restore_hook(hook, saved, device)
    restore(own, state["own"])


def restore_random(state: State, device: torch.device) -> None:
    """Restore the generators of torch, the GPU, Python, and numpy if it is loaded."""
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    random.setstate(_tuples(state["python"]))
    if "numpy" in state and "numpy" in sys.modules:
        kind, keys, *rest = state["numpy"]
        sys.modules["numpy"].random.set_state((kind, keys.numpy().astype("uint32"), *rest))


def gather(state: State, group: dist.ProcessGroup | None) -> list[State]:
    """Return the states of all ranks, in order, on rank 0; an empty list on the other ranks.

    They are sent as tensors and read with weights_only, so that no code from the network is executed. All ranks call
    this together.
    """
    if group is None:
        return [state]
    mine = to_bytes(state)
    sizes = [torch.zeros(1, dtype=torch.int64, device="cpu") for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(mine)], device="cpu"), group)
    longest = max(int(size) for size in sizes)
    padded = torch.nn.functional.pad(mine, (0, longest - len(mine)))
    if dist.get_rank(group):
        dist.gather(padded, None, 0, group)
        return []
    received = [torch.empty_like(padded) for _ in sizes]
    dist.gather(padded, received, 0, group)
    return [from_bytes(content[: int(size)]) for content, size in zip(received, sizes, strict=True)]


def broadcast(value: Any, group: dist.ProcessGroup | None) -> Any:
    """Return rank 0's value, which all ranks together send and receive as `gather` does."""
    if group is None:
        return value
    content = to_bytes(value)
    size = torch.tensor([len(content)], device="cpu")
    dist.broadcast(size, 0, group)
    if dist.get_rank(group):
        content = torch.empty(int(size), dtype=torch.uint8, device="cpu")
    dist.broadcast(content, 0, group)
    return from_bytes(content)


def to_bytes(state: Any) -> Tensor:
    """Return a state as a tensor of bytes."""
    content = io.BytesIO()
    torch.save(state, content)
    return torch.frombuffer(content.getbuffer(), dtype=torch.uint8)


def from_bytes(content: Tensor) -> Any:
    """Return what `to_bytes` was given."""
    return torch.load(io.BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True)


def _random(device: torch.device) -> State:
    state: State = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (kind, torch.from_numpy(keys.astype("int64")), *rest)
    return state


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _buffers(module: nn.Module) -> State:
    """Return all buffers, including those that are not in the module's state_dict."""
    return {name: buffer.detach().cpu() for name, buffer in unwrap(module).named_buffers()}


def _hooks(module: nn.Module) -> list[Any]:
    """Return the states of a module's communication hooks that keep values from step to step."""
    wrapped = [part for part in module.modules() if isinstance(part, DistributedDataParallel)]
    states = [state for part in wrapped for _, state in getattr(part, "_comm_hooks", [])]
    return [state for state in states if hasattr(state, "error_dict")]


def _hook_state(hook: Any) -> State:
    """Return the fields of a PowerSGDState; its generator becomes plain values."""
    state: State = {name: getattr(hook, name) for name in hook.__slots__ if name != "process_group"}
    kind, keys, *rest = state.pop("rng").get_state()
    return {**state, "rng": (kind, torch.from_numpy(keys.astype("int64")), *rest)}


def _restore_hook(hook: Any, state: State, device: torch.device) -> None:
    kind, keys, *rest = state["rng"]
    hook.rng.set_state((kind, keys.numpy().astype("uint32"), *rest))
    for name, value in state.items():
        if isinstance(value, dict):
            setattr(hook, name, {index: item.to(device) for index, item in value.items()})
        elif name != "rng":
            setattr(hook, name, value)
