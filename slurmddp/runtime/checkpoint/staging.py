"""Copies a training's state into host memory, where it is written while the training goes on, and to rank 0."""

from __future__ import annotations
import copy
import io
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from slurmddp.errors import RankError

State = dict[str, Any]
StatePath = tuple[Any, ...]
"""The keys and places that lead to a value of a state."""


class Snapshot:
    """Host memory for a copy of a state; the next copy uses it again."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], torch.Tensor] = {}

    def take(self, state: Any) -> Any:
        """Return a copy of dicts, lists and tuples of values and tensors, with all tensors in host memory.

        Tensors keep shape, dtype and strides; a tensor that occurs twice is copied once. The copy is valid until the
        next call, which writes into the same memory.
        """
        used: dict[tuple[Any, ...], torch.Tensor] = {}
        seen: dict[tuple[Any, ...], torch.Tensor] = {}
        devices: set[torch.device] = set()

        def copy_tensor(path: StatePath, tensor: torch.Tensor) -> torch.Tensor:
            tensor = tensor.detach()
            if tensor.layout is not torch.strided:
                return tensor.to("cpu", copy=True)
            form = (tensor.dtype, tensor.shape, tensor.stride())
            place, key = (tensor.device, tensor.data_ptr(), *form), (path, tensor.is_cuda, *form)
            if place in seen and tensor.numel():
                return seen[place]
            buffer = self._buffers.get(key)
            if buffer is None:
                buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
            if tensor.is_cuda:
                devices.add(tensor.device)
            used[key] = seen[place] = buffer.copy_(tensor, non_blocking=tensor.is_cuda)
            return buffer

        copied = map_tensors(state, copy_tensor)
        self._buffers = used
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        return copied


def map_tensors(value: Any, visit: Callable[[StatePath, torch.Tensor], torch.Tensor], path: StatePath = ()) -> Any:
    """Return a copy of a state of dicts, lists and tuples, with `visit` applied to each tensor."""
    if isinstance(value, torch.Tensor):
        return visit(path, value)
    if type(value) in (dict, OrderedDict):
        mapped = copy.copy(value)  # keeps `_metadata`, the versions of a module's parts
        mapped.update({key: map_tensors(item, visit, (*path, key)) for key, item in value.items()})
        return mapped
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, visit, (*path, place)) for place, item in enumerate(value))
    return copy.deepcopy(value)


def gather(state: State, group: dist.ProcessGroup | None) -> list[State]:
    """Return the states of all ranks, in order, on rank 0; an empty list on the other ranks.

    They are sent as tensors and read with weights_only, so that no code from the network is executed. All ranks call
    this together.
    """
    if group is None:
        return [state]
    mine = _to_bytes(state)
    sizes = [torch.zeros(1, dtype=torch.int64, device="cpu") for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(mine)], device="cpu"), group)
    longest = max(int(size) for size in sizes)
    padded = torch.nn.functional.pad(mine, (0, longest - len(mine)))
    received = [] if dist.get_rank(group) else [torch.empty_like(padded) for _ in sizes]
    dist.gather(padded, received or None, 0, group)
    return [_from_bytes(content[: int(size)]) for content, size in zip(received, sizes)]


def broadcast(value: Any, group: dist.ProcessGroup | None) -> Any:
    """Return rank 0's value, which all ranks together send and receive as `gather` does."""
    if group is None:
        return value
    content = _to_bytes(value)
    size = torch.tensor([len(content)], device="cpu")
    dist.broadcast(size, 0, group)
    if dist.get_rank(group):
        content = torch.empty(int(size), dtype=torch.uint8, device="cpu")
    dist.broadcast(content, 0, group)
    return _from_bytes(content)


def _to_bytes(state: Any) -> torch.Tensor:
    content = io.BytesIO()
    torch.save(state, content)
    return torch.frombuffer(content.getbuffer(), dtype=torch.uint8)


def _from_bytes(content: torch.Tensor) -> Any:
    return torch.load(io.BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True)


def check_plain(parts: Mapping[str, Any]) -> None:
    """Raise RankError when `torch.load(weights_only=True)` would not read a part's state back; copy no tensor's data.

    The error names the path of the first value that it would refuse, beginning with the part's name.
    """
    for name, state in parts.items():
        for path, leaf in _leaves(state, name) if _find_refusal(state) else ():
            if refusal := _find_refusal(leaf):
                raise RankError(
                    f"{path} is a {type(leaf).__module__}.{type(leaf).__qualname__}, which a checkpoint cannot hold; "
                    "keep tensors, numbers, texts, lists and dicts in it"
                ) from refusal


def _find_refusal(value: Any) -> Exception | None:
    def drop_data(_: StatePath, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(0, dtype=tensor.dtype) if type(tensor) in (torch.Tensor, torch.nn.Parameter) else tensor

    file = io.BytesIO()
    try:
        torch.save(map_tensors(value, drop_data), file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:  # noqa: BLE001 pickling calls the value's own code, which may raise anything
        return error
    return None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if type(value) in (dict, OrderedDict):
        for key, item in value.items():
            yield f"{path}.{key}", key
            yield from _leaves(item, f"{path}.{key}")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path, value
