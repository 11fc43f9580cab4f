"""Switches torch's flight recorder on, and keeps what it recorded when a rank fails.

The recorder holds the last collectives of each rank: which, of what shapes, how far. NCCL's writes its own dump when a
collective takes too long; gloo has nothing of the kind, so that a rank that fails writes it.
"""

import contextlib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from slurmddp.runs.layout import write_whole
from slurmddp.runtime.launch.rank import Rank

ENTRIES: Final = "2000"
"""Collectives that are held; torch's own number where it records by default."""
OLD_NAMES: Final = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": ("TORCH_FR_BUFFER_SIZE", (2, 8)),
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": ("TORCH_FR_DUMP_TEMP_FILE", (2, 10)),
}
"""What older versions of torch call a variable, and the version from which on it warns of that name."""


def switch_on(rank: Rank, environment: MutableMapping[str, str], version: str = torch.__version__) -> None:
    """Have the collectives recorded, and dumps placed beside the rank's output; what the user has set stays."""
    if rank.run_dir is None:
        return
    wanted = {
        "TORCH_FR_BUFFER_SIZE": ENTRIES,
        "TORCH_FR_DUMP_TEMP_FILE": rank.run_dir.flight_prefix(rank.job, rank.attempt),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }
    for old, (new, renamed) in OLD_NAMES.items():
        if old in environment:
            wanted.pop(new)
        elif tuple(map(int, version.split(".")[:2])) < renamed:
            wanted[old] = environment.get(new, wanted[new])
    for name, value in wanted.items():
        environment.setdefault(name, value)


def dump(rank: Rank) -> None:
    """Write what this rank's recorder holds, unless torch did; nothing where there is no group, or no room.

    The file is a pickle, of the form and the name that torch's own dumps have.
    """
    if rank.run_dir is None or not dist.is_initialized():
        return
    path = Path(f"{rank.run_dir.flight_prefix(rank.job, rank.attempt)}{rank.rank}")
    content = _recorded()
    if content and not path.exists():
        with contextlib.suppress(OSError):
            write_whole(path, content)


def _recorded() -> bytes:
    """Return the dump of the default group's recorder; empty where this torch has none for it.

    Without the lines of the program: torch would import its compiler to tell them, 1.6 s of each rank's CPU. torch has
    no public names for the functions: gloo's came with 2.8, a test holds that they are there.
    """
    name = "_dump_nccl_trace" if dist.get_backend() == "nccl" else "_dump_fr_trace"
    take = getattr(torch._C._distributed_c10d, name, None)  # noqa: SLF001 - as above
    return bytes(take(includeStackTraces=False)) if take else b""
