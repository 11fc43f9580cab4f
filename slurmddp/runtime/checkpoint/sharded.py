"""A state that is divided among the ranks: collects each rank's pieces, writes them by all ranks, and loads them.

No rank holds the whole of a model under `fully_shard`, of its optimizer, or of a ZeroRedundancyOptimizer. Each rank
saves its pieces of the tensors. Rank 0 also saves the frame: the state with tensors on the meta device, which have only
shape and dtype. The pieces have the layout of torch.distributed.checkpoint, which reads them for any number of ranks.
Its collectives are not used, because they send pickles over the network.
"""

from __future__ import annotations
import pickle
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

import torch
import torch.distributed as dist
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
from slurmddp.old_python import dataclass
from slurmddp.runs.files import write_whole
from slurmddp.runtime.checkpoint.staging import State, StatePath, broadcast, check_plain, gather, map_tensors
from slurmddp.runtime.checkpoint.store import INDEX, Files, Store, save_parts, save_states
from slurmddp.runtime.checkpoint.training_state import Stateful, is_zero, parameters_of, state_of
from slurmddp.runtime.launch.rank import Rank

METADATA = ".metadata"
"""The index for the tools of torch.distributed.checkpoint; never read here, because it is a pickle."""

Report = dict[str, Any]
Piece = tuple[str, tuple[int, ...], Tensor]
"""What one rank saves of one tensor: its path in the state, joined by dots, where the piece begins in it, the piece."""
_Targets = Callable[[StatePath], Optional[Tensor]]


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one rank saves of the divided parts."""

    frame: State
    """By part; on ranks other than 0, only what rank 0 does not have."""
    divided: dict[str, list[int | None]]
    """By tensor: for each dimension of the mesh, the dimension of the tensor that is divided over it, or None."""
    pieces: tuple[Piece, ...]


def build_index(shares: Iterable[Mapping[str, Any]]) -> State:
    """Return the index of a checkpoint from what each rank reports: its `frame`, `divided` and `entries`.

    An entry of a piece has name, offsets, sizes, file, and where it begins there and how long it is, in bytes.
    """
    first, *others = shares
    frame = dict(first["frame"])
    entries = {tuple(entry[:2]): entry for share in (first, *others) for entry in share["entries"]}
    for other in others:
        for name, part in other["frame"].items():
            frame[name] = {**frame[name], "state": {**frame[name]["state"], **part["state"]}}
    return {"frame": frame, "divided": first["divided"], "entries": list(entries.values())}


def load(folder: Path, index: State, parts: Mapping[str, Stateful]) -> State:
    """Return this rank's state of each part, from the pieces in `folder`, which may be divided in another way."""
    targets: dict[str, Tensor] = {}
    loaded: State = {}
    for name, part in parts.items():
        if name in index["frame"]:
            target = _target_by_path(part)

            def allocate(path: StatePath, tensor: Tensor, target: _Targets = target) -> Tensor:
                name = _name(path)
                targets[name] = _allocate(tensor, target(path[1:]), index["divided"].get(name))
                return targets[name]

            loaded[name] = map_tensors(_drop_remote(index["frame"][name], part), allocate, (name,))
    planner, reader = DefaultLoadPlanner(flatten_state_dict=False), FileSystemReader(folder)
    metadata = metadata_of(index)
    planner.set_up_planner(targets, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()
    return loaded


def _name(path: StatePath) -> str:
    return ".".join(map(str, path))


def _make_collector(tensors: dict[str, Tensor]) -> Callable[[StatePath, Tensor], Tensor]:
    def visit(path: StatePath, tensor: Tensor) -> Tensor:
        name = _name(path)
        if name in tensors:
            raise RankError(f"two tensors of the state are called {name}; rename one")
        tensors[name] = tensor.detach()
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    return visit


def _allocate(tensor: Tensor, target: Tensor | None, dimensions: list[int | None] | None) -> Tensor:
    """Return memory for this rank's piece of a tensor: divided as `target` is, or as it was when it was saved."""
    if dimensions is None or not isinstance(target, DTensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    if tensor.shape == target.shape:
        return torch.empty_like(target, dtype=tensor.dtype, requires_grad=False)
    placements = [Replicate() if dimension is None else Shard(dimension) for dimension in dimensions]
    return empty_dtensor(
        *tensor.shape,
        dtype=tensor.dtype,
        device_mesh=target.device_mesh,
        placements=placements[: target.device_mesh.ndim],
    )


def _target_by_path(part: Stateful) -> _Targets:
    """Return the tensor by path that a part's state is divided like; an optimizer's is divided like its parameters."""
    if isinstance(part, torch.optim.Optimizer):
        parameters = dict(enumerate(parameters_of(part)))
        return lambda path: parameters.get(path[1])
    found: dict[StatePath, Tensor] = {}
    map_tensors(state_of(part), found.setdefault)
    return found.get


def _drop_remote(frame: State, part: Stateful) -> State:
    """Return the frame without the parameters of a ZeroRedundancyOptimizer that other ranks hold."""
    if not is_zero(part):
        return frame
    here = {id(parameter) for parameter in parameters_of(part.optim)}  # type: ignore[attr-defined]  # is_zero says it
    numbers = {number for number, parameter in enumerate(parameters_of(part)) if id(parameter) in here}  # type: ignore[arg-type]
    return {**frame, "state": {number: state for number, state in frame["state"].items() if number in numbers}}


def _is_saved_here(tensor: Tensor, *, alone: bool) -> bool:
    """Tell whether this rank saves its piece; of several ranks that have the same piece, only one does."""
    if not isinstance(tensor, DTensor):
        return alone
    places = tensor.device_mesh.get_coordinate()
    return places is not None and all(
        place == 0 or not placement.is_replicate() for place, placement in zip(places, tensor.placements)
    )


def metadata_of(index: State) -> Metadata:
    """Return the content of METADATA, before it is pickled."""
    found: dict[StatePath, Tensor] = {}
    map_tensors(index["frame"], found.setdefault)
    tensors = {
        _name(path): TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.shape, [])
        for path, tensor in found.items()
    }
    paths, places = {_name(path): path for path in found}, {}
    for name, begins_at, sizes, file, begin, length in index["entries"]:
        offsets = torch.Size(begins_at)
        tensors[name].chunks.append(ChunkStorageMetadata(offsets, torch.Size(sizes)))
        places[MetadataIndex(name, offsets)] = _StorageInfo(file, begin, length)
    return Metadata(state_dict_metadata=dict(tensors), planner_data=paths, storage_data=places)


class CollectiveSave:
    """Writes one checkpoint by all ranks, in their threads; all call it together.

    Rank 0 names the folder, and each rank writes its own file into it and reports; rank 0 also writes the other files.
    The folder becomes a checkpoint when all have succeeded.
    """

    def __init__(self, parts: Mapping[str, Stateful], store: Store, who: Rank, group: dist.ProcessGroup | None) -> None:
        """`group` is a gloo group with no other use; None when the world size is 1."""
        self._parts, self._store, self._who = parts, store, who
        self._group = group

    def collect_share(self) -> Share:
        """Return what this rank saves now, on rank 0 also what all ranks have alike; nothing is copied or sent."""
        main = self._who.is_main
        frame: State = {}
        divided: dict[str, list[int | None]] = {}
        pieces: list[Piece] = []
        for name, part in self._parts.items():
            tensors: dict[str, Tensor] = {}
            framed = map_tensors(state_of(part), _make_collector(tensors), (name,))
            alone = is_zero(part)
            if main or alone:
                frame[name] = framed if main else {"state": framed["state"]}
            for key, tensor in tensors.items():
                if isinstance(tensor, DTensor):
                    divided[key] = [place.dim if isinstance(place, Shard) else None for place in tensor.placements]
            saved = {key: tensor for key, tensor in tensors.items() if _is_saved_here(tensor, alone=main or alone)}
            planner = DefaultSavePlanner(flatten_state_dict=False)
            planner.set_up_planner(saved, is_coordinator=True)
            for item in planner.create_local_plan().items:
                piece = planner.resolve_data(item)
                if isinstance(piece, Tensor) and piece.numel():
                    pieces.append((item.index.fqn, tuple(item.index.offset or ()), piece))
        return Share(frame=frame, divided=divided, pieces=tuple(pieces))

    def write(self, step: int, files: Mapping[str, Any], share: Share, note: Mapping[str, Any]) -> None:
        """Write a checkpoint, if rank 0 has `files` for it, which are those that it writes beside its share.

        On rank 0 raises as `Store.write` does, also when another rank could not write.
        """
        if not self._who.is_main:
            if name := broadcast("", self._group):
                self._gather(lambda: self._write(self._store.folder / name, share, {}))
            return
        named = False

        def fill(folder: Path) -> Files:
            nonlocal named
            named = True
            broadcast(folder.name, self._group)
            reports = self._gather(lambda: self._write(folder, share, files))
            for report in reports:  # the error of the first rank that could not write
                if "error" in report:
                    raise OSError(*report["error"])
            index = build_index(reports)
            written: Files = {name: file for report in reports for name, file in report["files"].items()}
            written |= save_parts({INDEX: index}, folder)
            metadata = pickle.dumps(metadata_of(index))
            write_whole(folder / METADATA, metadata)
            return {**written, METADATA: {"size": len(metadata), "crc32": f"{zlib.crc32(metadata):08x}"}}

        try:
            if files:
                self._store.write_with(step, fill, note)
        finally:
            if not named:  # there is no checkpoint to write
                broadcast("", self._group)

    def _write(self, folder: Path, share: Share, parts: Mapping[str, Any]) -> Report:
        check_plain(share.frame)
        name = f"rank-{self._who.rank:05d}.distcp"
        files = save_parts(parts, folder)
        files[name], spans = save_states((piece for _, _, piece in share.pieces), folder / name)
        placed = zip(share.pieces, spans)
        entries = [(key, offsets, tuple(piece.shape), name, *span) for (key, offsets, piece), span in placed]
        return {"files": files, "frame": share.frame, "divided": share.divided, "entries": entries}

    def _gather(self, write: Callable[[], Report]) -> list[Report]:
        """Return the reports of all ranks, on rank 0; a rank that cannot write reports its error."""
        try:
            report = write()
        except OSError as error:
            reason = f"{error.strerror} (rank {self._who.rank} on {self._who.host})"
            report = {"error": [error.errno, reason, str(error.filename or self._store.folder)]}
        return gather(report, self._group)
