"""Enables torch's flight recorder, and writes its content when a rank fails.

The recorder holds the last collectives of each rank, with shapes and state. NCCL's recorder writes a dump when a
collective times out. That of gloo does not; therefore a rank that fails writes it.
"""

import contextlib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from slurmddp.runs.files import write_whole
from slurmddp.runtime.launch.rank import Rank

ENTRIES: Final = "2000"
"""Number of collectives that are held, as torch's own default."""
SIZE: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", (2, 8))
PREFIX: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", (2, 10))
"""The name of a variable, its old name, and the version of torch that begins to warn of the old one."""


def enable(rank: Rank, environment: MutableMapping[str, str], version: str = torch.__version__) -> None:
    """Record the collectives, and write dumps next to the rank's output; variables that the user has set stay."""
    if rank.run_dir is None:
        return
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    prefix = rank.run_dir.flight_prefix(rank.job, rank.attempt)
    for (name, old, renamed), value in ((SIZE, ENTRIES), (PREFIX, prefix)):
        if name not in environment and old not in environment:
            environment[name if tuple(map(int, version.split(".")[:2])) >= renamed else old] = value


def dump(rank: Rank) -> None:
    """Write the content of this rank's recorder, unless torch did; nothing without a group, or on a full disk.

    The file is a pickle, of the format and name of torch's own dumps.
    """
    if rank.run_dir is None or not dist.is_initialized():
        return
    path = Path(f"{rank.run_dir.flight_prefix(rank.job, rank.attempt)}{rank.rank}")
    # Without stack traces: for those torch would import its compiler, 1.6 s of each rank's CPU. The functions have no
    # public names; gloo's came with torch 2.8, and a test checks that they exist.
    name = "_dump_nccl_trace" if dist.get_backend() == "nccl" else "_dump_fr_trace"
    take = getattr(torch._C._distributed_c10d, name, None)  # noqa: SLF001 - as above
    content = bytes(take(includeStackTraces=False)) if take else b""
    if content and not path.exists():
        with contextlib.suppress(OSError):
            write_whole(path, content)
