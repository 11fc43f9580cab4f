"""The training that this process takes part in: `with slurmddp.init() as ddp`."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.distributed as dist

from slurmddp.errors import RankError
from slurmddp.old_python import dataclass
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank, read_rank
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.rendezvous.process_group import choose_device, form_control_group, form_group, leave_group
from slurmddp.runtime.stopping.stopping import Stopping


@dataclass(frozen=True, kw_only=True, eq=False)
class Session(Rank):
    """One rank of a training whose group is up."""

    current: ClassVar["Session | None"] = None
    """The training inside of `with slurmddp.init()`."""

    stopping: Stopping
    device: torch.device
    """This rank's GPU, or the CPU; already current."""
    control: "dist.ProcessGroup | None"
    """A second group of all ranks, by gloo; None where this process is alone."""
    folders: set[Path] = field(default_factory=set)
    """Checkpoint folders in use by Checkpointers of this process."""

    def print(self, *words: object) -> None:
        """Print on rank 0 alone; a full disk does not raise."""
        if self.is_main:
            print_line(" ".join(map(str, words)))


def current() -> Session:
    """Return the session of this process; raise RankError when there is none."""
    if Session.current is None:
        raise RankError("there is no session; put the training into `with slurmddp.init() as ddp:`")
    return Session.current


@contextlib.contextmanager
def init(device: Literal["auto", "cpu", "cuda"] = "auto") -> Iterator[Session]:
    """Choose the device and form the process group, NCCL on CUDA and gloo on the CPU; at the end, wait for all ranks.

    Works under `slurmddp submit` and `slurmddp run`, under torchrun, and in a single process without a launcher. Raises
    RankError when the device is not available, PeerError when the other ranks do not come or do not reach the end.
    """
    if Session.current:
        raise RankError("slurmddp.init() is already in use in this process; leave the first `with` before")
    process = this_process()
    stopping = process.stopping if process.has_begun else process.begin(read_rank(os.environ))
    rank = stopping.rank
    chosen = choose_device(device, rank)
    form_group(rank, chosen)
    control = form_control_group(rank.world_size)
    Session.current = Session(**vars(rank), stopping=stopping, device=chosen, control=control)
    try:
        yield Session.current
    finally:
        Session.current = None
    leave_group(control)
