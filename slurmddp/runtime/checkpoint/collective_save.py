"""Writes one checkpoint by all ranks: each rank writes its own file, rank 0 also the others. Runs in their threads.

Rank 0 names the folder, and each rank writes into it and reports. It becomes a checkpoint when all have succeeded.
"""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from slurmddp.runtime.checkpoint import sharded, staging
from slurmddp.runtime.checkpoint.sharded import Share
from slurmddp.runtime.checkpoint.store import INDEX, Files, Store, save_bytes, save_parts, save_states
from slurmddp.runtime.checkpoint.training_state import Stateful
from slurmddp.runtime.launch.rank import Rank

Report = dict[str, Any]


class CollectiveSave:
    """The ranks of one Checkpointer that write. All ranks call it together: rank 0 one method, the others another."""

    def __init__(self, parts: Mapping[str, Stateful], store: Store, who: Rank, group: dist.ProcessGroup | None) -> None:
        """`group` is a gloo group with no other use; None when the world size is 1."""
        self._parts, self._store, self._who = parts, store, who
        self._group = group

    def collect_share(self) -> Share:
        """Return what this rank saves of the present state; nothing is copied or sent."""
        return sharded.collect_share(self._parts, main=self._who.is_main)

    def write_as_main(self, step: int, parts: Mapping[str, Any], share: Share, note: Mapping[str, Any]) -> None:
        """Write a checkpoint, as rank 0; raise as `Store.write` does, also when another rank could not write."""
        named = False

        def fill(folder: Path) -> Files:
            nonlocal named
            named = True
            staging.broadcast(folder.name, self._group)
            reports = self._gather(lambda: self._write(folder, share, parts))
            for report in reports:  # the error of the first rank that could not write
                if "error" in report:
                    raise OSError(*report["error"])
            index = sharded.build_index(reports)
            files: Files = {name: file for report in reports for name, file in report["files"].items()}
            files |= save_parts({INDEX: index}, folder)
            files[sharded.METADATA] = save_bytes(pickle.dumps(sharded.metadata_of(index)), folder / sharded.METADATA)
            return files

        try:
            self._store.write_with(step, fill, note)
        finally:
            if not named:
                self.skip()

    def skip(self) -> None:
        """Tell the other ranks, as rank 0, that there is no checkpoint to write."""
        staging.broadcast("", self._group)

    def write_as_peer(self, share: Share) -> None:
        """Write this rank's file, as a rank other than 0, if rank 0 writes a checkpoint."""
        name = staging.broadcast("", self._group)
        if name:
            self._gather(lambda: self._write(self._store.folder / name, share, {}))

    def _write(self, folder: Path, share: Share, parts: Mapping[str, Any]) -> Report:
        staging.check_plain(share.frame)
        name = f"rank-{self._who.rank:05d}.distcp"
        files = save_parts(parts, folder)
        files[name], spans = save_states(share.tensors, folder / name)
        places = zip(share.pieces, spans, strict=True)
        entries = [(piece.name, piece.offsets, tuple(piece.tensor.shape), name, *span) for piece, span in places]
        return {"files": files, "frame": share.frame, "divided": share.divided, "entries": entries}

    def _gather(self, write: Callable[[], Report]) -> list[Report]:
        """Return the reports of all ranks, on rank 0; a rank that cannot write reports its error."""
        try:
            report = write()
        except OSError as error:
            reason = f"{error.strerror} (rank {self._who.rank} on {self._who.host})"
            report = {"error": [error.errno, reason, str(error.filename or self._store.folder)]}
        return staging.gather(report, self._group)
