"""A state that is divided among the ranks: each rank's pieces, the index of all, and the way back. Writes no files.

Of a model under `fully_shard` and its optimizer, or of a ZeroRedundancyOptimizer, no rank holds the whole. Each rank
saves its pieces of the tensors, and rank 0 the frame: the state with its tensors on the meta device, which have shape
and dtype alone. The pieces lie as torch.distributed.checkpoint lays them out, and are read by it for any number of
ranks. Its collectives are not used: they are pickles from the network.
"""

import copy
import dataclasses
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import empty as empty_dtensor

from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint.state import State, Stateful, is_zero, state_of

METADATA = ".metadata"
"""The index as torch.distributed.checkpoint wants it, for its own tools; never read here, since it is a pickle."""

_Path = tuple[Any, ...]
_Visit = Callable[[_Path, Tensor], Tensor]
_Pattern = Callable[[_Path], Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one rank saves of one tensor."""

    name: str
    """The tensor's path in the state, joined by dots."""
    offsets: tuple[int, ...]
    """Where in the tensor the piece begins."""
    tensor: Tensor


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one rank saves of the divided parts."""

    frame: State
    """By part; of other ranks than 0, only what rank 0 has not."""
    divided: dict[str, list[int | None]]
    """By tensor and dimension of the mesh: the tensor's dimension that is divided over it, None for none."""
    pieces: tuple[Piece, ...]

    @property
    def tensors(self) -> list[Tensor]:
        """The pieces' contents."""
        return [piece.tensor for piece in self.pieces]

    def of(self, tensors: Sequence[Tensor]) -> "Share":
        """Return this share with other contents."""
        pairs = zip(self.pieces, tensors, strict=True)
        return dataclasses.replace(self, pieces=tuple(dataclasses.replace(one, tensor=other) for one, other in pairs))


class Entry(NamedTuple):
    """Where a piece lies."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    begin: int
    """In the file, in bytes."""
    length: int
    """In bytes."""


def share_of(parts: Mapping[str, Stateful], *, main: bool) -> Share:
    """Return what this rank saves; rank 0 (`main`) also what is alike on all."""
    frame: State = {}
    divided: dict[str, list[int | None]] = {}
    pieces: list[Piece] = []
    for name, part in parts.items():
        tensors: dict[str, Tensor] = {}
        framed = _mapped(state_of(part), _collecting(tensors), (name,))
        alone = is_zero(part)
        if main or alone:
            frame[name] = framed if main else {"state": framed["state"]}
        divided |= {key: _divided(tensor) for key, tensor in tensors.items() if isinstance(tensor, DTensor)}
        pieces += _pieces({key: tensor for key, tensor in tensors.items() if _saves(tensor, alone=main or alone)})
    return Share(frame=frame, divided=divided, pieces=tuple(pieces))


def index_of(shares: Iterable[Mapping[str, Any]]) -> State:
    """Return the index of a checkpoint from what each rank reports: its `frame`, `divided` and `entries`."""
    first, *others = shares
    frame = dict(first["frame"])
    entries = {tuple(entry[:2]): entry for share in (first, *others) for entry in share["entries"]}
    for other in others:
        for name, part in other["frame"].items():
            frame[name] = {**frame[name], "state": {**frame[name]["state"], **part["state"]}}
    return {"frame": frame, "divided": first["divided"], "entries": list(entries.values())}


def for_torchs_tools(index: State) -> bytes:
    """Return the content of METADATA."""
    return pickle.dumps(_metadata(index))


def load(folder: Path, index: State, parts: Mapping[str, Stateful]) -> State:
    """Return the state of each part as far as this rank holds it, from the pieces that lie in `folder`."""
    targets: dict[str, Tensor] = {}
    loaded: State = {}
    for name, part in parts.items():
        if name in index["frame"]:
            visit = _allocating(targets, _pattern(part), index["divided"])
            loaded[name] = _mapped(_local(index["frame"][name], part), visit, (name,))
    _read(folder, _metadata(index), targets)
    return loaded


def _read(folder: Path, metadata: Metadata, targets: dict[str, Tensor]) -> None:
    """Fill this rank's pieces from those that were saved, however the tensors were divided then."""
    planner, reader = DefaultLoadPlanner(flatten_state_dict=False), FileSystemReader(folder)
    planner.set_up_planner(targets, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()


def _mapped(value: Any, visit: _Visit, path: _Path) -> Any:
    """Return a copy of a state in which each tensor is what `visit` makes of it."""
    if isinstance(value, Tensor):
        return visit(path, value)
    if type(value) in (dict, OrderedDict):
        mapped = copy.copy(value)  # with the attribute in which a module's state keeps the versions of its parts
        mapped.update({key: _mapped(item, visit, (*path, key)) for key, item in value.items()})
        return mapped
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, visit, (*path, place)) for place, item in enumerate(value))
    return copy.deepcopy(value)


def _name(path: _Path) -> str:
    return ".".join(map(str, path))


def _collecting(tensors: dict[str, Tensor]) -> _Visit:
    def visit(path: _Path, tensor: Tensor) -> Tensor:
        name = _name(path)
        if name in tensors:
            raise RankError(f"two tensors of the state are called {name}; rename one")
        tensors[name] = tensor.detach()
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    return visit


def _allocating(targets: dict[str, Tensor], pattern: _Pattern, divided: Mapping[str, list[int | None]]) -> _Visit:
    def visit(path: _Path, tensor: Tensor) -> Tensor:
        name = _name(path)
        targets[name] = _room(tensor, pattern(path[1:]), divided.get(name))
        return targets[name]

    return visit


def _room(tensor: Tensor, pattern: Tensor | None, dimensions: list[int | None] | None) -> Tensor:
    """Return memory for this rank's piece of a tensor that is divided as `pattern` is now, or as it was."""
    if dimensions is None or not isinstance(pattern, DTensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    if tensor.shape == pattern.shape:
        return torch.empty_like(pattern, dtype=tensor.dtype, requires_grad=False)
    placements = [Replicate() if dimension is None else Shard(dimension) for dimension in dimensions]
    return empty_dtensor(
        *tensor.shape,
        dtype=tensor.dtype,
        device_mesh=pattern.device_mesh,
        placements=placements[: pattern.device_mesh.ndim],
    )


def _pattern(part: Stateful) -> _Pattern:
    """Return what tells how a part's state is divided now; an optimizer's is as its parameters are."""
    if isinstance(part, torch.optim.Optimizer):
        parameters = dict(enumerate(_parameters(part)))
        return lambda path: parameters.get(path[1])
    found: dict[_Path, Tensor] = {}
    _mapped(state_of(part), found.setdefault, ())
    return found.get


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return list(chain.from_iterable(group["params"] for group in optimizer.param_groups))


def _local(frame: State, part: Stateful) -> State:
    """Return the frame without what other ranks hold, where a part has whole tensors of some parameters alone."""
    if not is_zero(part):
        return frame
    here = {id(parameter) for parameter in _parameters(part.optim)}  # type: ignore[attr-defined]  # is_zero says it
    numbers = {number for number, parameter in enumerate(_parameters(part)) if id(parameter) in here}  # type: ignore[arg-type]
    return {**frame, "state": {number: state for number, state in frame["state"].items() if number in numbers}}


def _divided(tensor: DTensor) -> list[int | None]:
    return [placement.dim if isinstance(placement, Shard) else None for placement in tensor.placements]


def _saves(tensor: Tensor, *, alone: bool) -> bool:
    """Tell whether this rank saves its piece, and not another one that has the same."""
    if not isinstance(tensor, DTensor):
        return alone
    places = tensor.device_mesh.get_coordinate()
    return places is not None and all(
        place == 0 or not placement.is_replicate() for place, placement in zip(places, tensor.placements, strict=True)
    )


def _pieces(tensors: dict[str, Tensor]) -> list[Piece]:
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(tensors, is_coordinator=True)
    found = []
    for item in planner.create_local_plan().items:
        tensor = planner.resolve_data(item)
        if isinstance(tensor, Tensor) and tensor.numel():
            found.append(Piece(name=item.index.fqn, offsets=tuple(item.index.offset or ()), tensor=tensor))
    return found


def _metadata(index: State) -> Metadata:
    paths: dict[str, _Path] = {}
    tensors: dict[str, TensorStorageMetadata] = {}

    def visit(path: _Path, tensor: Tensor) -> Tensor:
        paths[_name(path)] = path
        tensors[_name(path)] = TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.shape, [])
        return tensor

    _mapped(index["frame"], visit, ())
    places = {}
    for entry in (Entry(*entry) for entry in index["entries"]):
        offsets = torch.Size(entry.offsets)
        tensors[entry.name].chunks.append(ChunkStorageMetadata(offsets, torch.Size(entry.sizes)))
        places[MetadataIndex(entry.name, offsets)] = _StorageInfo(entry.file, entry.begin, entry.length)
    return Metadata(state_dict_metadata=dict(tensors), planner_data=paths, storage_data=places)
