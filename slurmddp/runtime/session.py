"""The training that this process takes part in: `with slurmddp.init() as ddp`."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from slurmddp.errors import RankError
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.launch.rank import Rank, read_rank
from slurmddp.runtime.rendezvous.process_group import choose_device, form, leave
from slurmddp.runtime.stopping import stop_policy
from slurmddp.runtime.stopping.stop_policy import Stopping


@dataclass(frozen=True)
class Session:
    """One rank of a training whose group is up."""

    who: Rank
    stopping: Stopping
    device: torch.device
    """This rank's GPU, or the CPU; already current."""
    control: dist.ProcessGroup | None
    """A gloo group of all ranks beside the default one; None where this process is alone."""
    folders: set[Path] = field(default_factory=set)
    """Where checkpoints of this process lie."""

    @property
    def rank(self) -> int:
        """0 to world_size - 1."""
        return self.who.rank

    @property
    def local_rank(self) -> int:
        """0 to the node's ranks - 1."""
        return self.who.local_rank

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.who.world_size

    @property
    def is_main(self) -> bool:
        """Whether this is global rank 0, which writes and prints."""
        return self.who.is_main

    @property
    def host(self) -> str:
        """This node's name."""
        return self.who.host

    @property
    def nodes(self) -> int:
        """On how many nodes the ranks are."""
        return self.who.nodes

    @property
    def launcher(self) -> str:
        """srun, fork, torchrun, mpi or single."""
        return self.who.launcher

    @property
    def run_dir(self) -> RunDir | None:
        """The run's folder; None for a process started by hand."""
        return self.who.run_dir

    def print(self, *words: object) -> None:
        """Print on rank 0 alone, as long as there is room for it."""
        if self.is_main:
            with contextlib.suppress(OSError):
                print_line(" ".join(map(str, words)))

    def take(self, folder: Path) -> None:
        """Give a folder of checkpoints to one Checkpointer; raise RankError when another has it."""
        place = folder.resolve()
        if place in self.folders:
            raise RankError(
                f"a Checkpointer of this program keeps its checkpoints in {folder}; give this one a folder="
            )
        self.folders.add(place)


PATIENCE = timedelta(days=1)
"""For the others, of which one may be busy alone, with an evaluation say; one that is dead is known at once."""

_sessions: list[Session] = []


def current() -> Session:
    """Return the session of this process; raise RankError when there is none."""
    if not _sessions:
        raise RankError("there is no session; put the training into `with slurmddp.init() as ddp:`")
    return _sessions[-1]


@contextlib.contextmanager
def init(device: Literal["auto", "cpu", "cuda"] = "auto") -> Iterator[Session]:
    """Choose the device, form the group, NCCL on CUDA and gloo on the CPU, and leave it by a barrier.

    Works under `slurmddp submit` and `slurmddp run`, under torchrun, and for a single process started by hand. Raises
    RankError when the device cannot be had, PeerError when the other ranks do not come or do not reach the end.
    """
    if _sessions:
        raise RankError("slurmddp.init() is already in use in this process; leave the first `with` before")
    begun = stop_policy.begun() or stop_policy.begin(read_rank(os.environ))
    rank = begun.rank
    chosen = choose_device(device, rank)
    form(rank, chosen)
    control = dist.new_group(backend="gloo", timeout=PATIENCE) if rank.world_size > 1 else None
    _sessions.append(Session(rank, begun, chosen, control))
    try:
        yield _sessions[-1]
    finally:
        _sessions.pop()
    leave(control)
