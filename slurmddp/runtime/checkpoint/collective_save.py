"""Lets all ranks write one checkpoint: each its own file, rank 0 the rest, which makes it one. In the writers' threads.

Rank 0 names the folder, each rank writes into it and reports, and only what all have written becomes a checkpoint.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from slurmddp.runtime.checkpoint import sharded, state
from slurmddp.runtime.checkpoint.sharded import Entry, Share
from slurmddp.runtime.checkpoint.staging import check_plain
from slurmddp.runtime.checkpoint.state import Stateful
from slurmddp.runtime.checkpoint.store import INDEX, Files, Store, save_bytes, save_each, save_parts
from slurmddp.runtime.launch.rank import Rank

NAME_BYTES = 255
"""Of a folder's name."""

Report = dict[str, Any]


class Joint:
    """The ranks of one Checkpointer as its writers; each call is one of all of them."""

    def __init__(self, parts: Mapping[str, Stateful], folder: Path, who: Rank, group: dist.ProcessGroup | None) -> None:
        """`group` is one of gloo that nothing else uses; None where this process is alone."""
        self._parts = parts
        self._folder = folder
        self._who = who
        self._group = group

    def share(self) -> Share:
        """Return what this rank saves of the present state; nothing is copied, and nothing said."""
        return sharded.share_of(self._parts, main=self._who.is_main)

    def lead(self, store: Store, step: int, parts: Mapping[str, Any], share: Share, note: Mapping[str, Any]) -> None:
        """Write a checkpoint, as rank 0; raise as `Store.write` does, also when another rank's disk has refused."""
        told = False

        def fill(folder: Path) -> Files:
            nonlocal told
            told = True
            self._tell(folder.name)
            reports = self._gather(lambda: self._write(folder, share, parts))
            return self._finish(folder, reports)

        try:
            store.write_by(step, fill, note)
        finally:
            if not told:
                self.skip()

    def skip(self) -> None:
        """Let the others go without a checkpoint, as rank 0."""
        self._tell("")

    def follow(self, share: Share) -> None:
        """Write this rank's file, as another rank than 0, unless there is to be no checkpoint."""
        name = self._tell("")
        if name:
            self._gather(lambda: self._write(self._folder / name, share, {}))

    def _write(self, folder: Path, share: Share, parts: Mapping[str, Any]) -> Report:
        for part, frame in share.frame.items():
            check_plain(frame, part)
        name = f"rank-{self._who.rank:05d}.distcp"
        files = save_parts(parts, folder)
        files[name], spans = save_each(share.tensors, folder / name)
        places = zip(share.pieces, spans, strict=True)
        entries = [Entry(piece.name, piece.offsets, tuple(piece.tensor.shape), name, *span) for piece, span in places]
        return {
            "files": files,
            "frame": share.frame,
            "divided": share.divided,
            "entries": [tuple(entry) for entry in entries],
        }

    def _gather(self, write: Callable[[], Report]) -> list[Report]:
        """Return what all ranks report, on rank 0; a disk that refuses keeps nobody from it."""
        try:
            report = write()
        except OSError as error:
            reason = f"{error.strerror} (rank {self._who.rank} on {self._who.host})"
            report = {"error": [error.errno, reason, str(error.filename or self._folder)]}
        return state.gather(report, self._group)

    def _finish(self, folder: Path, reports: list[Report]) -> Files:
        """Write what is known when all have written; raise what the first of them could not."""
        for report in reports:
            if "error" in report:
                raise OSError(*report["error"])
        index = sharded.index_of(reports)
        files: Files = {name: file for report in reports for name, file in report["files"].items()}
        files |= save_parts({INDEX: index}, folder)
        files[sharded.METADATA] = save_bytes(sharded.for_torchs_tools(index), folder / sharded.METADATA)
        return files

    def _tell(self, name: str) -> str:
        """Return the name that rank 0 gives."""
        if self._group is None:
            return name
        message = torch.tensor(list(name.encode().ljust(NAME_BYTES, b"\0")), dtype=torch.uint8)
        dist.broadcast(message, 0, self._group)
        return bytes(message.tolist()).rstrip(b"\0").decode()
