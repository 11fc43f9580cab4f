"""Chooses the device and forms the process group. Never trains on the wrong device without saying so."""

from __future__ import annotations
import contextlib
import ctypes
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore, Store, TCPStore
from torch.distributed import distributed_c10d

from slurmddp.errors import RankError
from slurmddp.runtime import patches
from slurmddp.runtime.health.facts import HIDDEN
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank

FORM_LIMIT = timedelta(seconds=60)
"""For the group to form; all ranks have just met, so that only the network can be slow."""
COLLECTIVE_LIMIT = timedelta(minutes=10)
"""For each collective afterwards; torch's default for NCCL."""
CONTROL_LIMIT = timedelta(days=1)
"""For a collective of a control group: a rank may be busy alone, as with an evaluation; a dead one fails at once."""

DRIVER_SIGNS = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"))
_DESTROYED_GROUPS: Final[list[Any]] = []
"""Keeps references, so that no destructor runs."""


def choose_device(
    requested: Literal["auto", "cpu", "cuda"], rank: Rank, environment: Mapping[str, str] = os.environ
) -> torch.device:
    """Return this rank's device and make it current.

    `auto` is CUDA if it works, and the CPU if there is no driver, with a line from rank 0. Raises RankError when there
    is a driver but CUDA does not work, or when the GPUs are fewer than the ranks or more than Slurm gave.
    """
    if requested == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        visible, given = torch.cuda.device_count(), environment.get("SLURM_GPUS_ON_NODE", "")
        if given.isdecimal() and visible > int(given):
            raise RankError(
                f"{visible} GPUs are visible on {rank.host}, but Slurm gave this job SLURM_GPUS_ON_NODE={given}; "
                "leave CUDA_VISIBLE_DEVICES to Slurm"
            )
        if visible < rank.local_world_size:
            raise RankError(
                f"{rank.local_world_size} ranks on {rank.host} see {visible} GPU{'s' if visible > 1 else ''}; "
                f"ask for --gpus-per-node {rank.local_world_size}, not for GPUs per task"
            )
        device = torch.device("cuda", rank.local_rank)
        torch.cuda.set_device(device)
        return device
    why = _find_cuda_fault(environment)
    if requested == "cuda" or why:
        raise RankError(f"no CUDA on {rank.host}: {why or 'there is no NVIDIA driver'}; or ask for --device cpu")
    if rank.is_main:
        print_line("WARNING: no GPU for this job: training on the CPU")
    return torch.device("cpu")


def _find_cuda_fault(environment: Mapping[str, str]) -> str:
    """Return why CUDA does not work in spite of a driver; empty without a driver, or when its GPUs are hidden."""
    sign = _driver_sign()
    if sign is None or environment.get("CUDA_VISIBLE_DEVICES") in HIDDEN:
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f"the driver is there ({sign}), but torch {torch.__version__} was built without CUDA"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    except (RuntimeError, AssertionError) as error:
        return f"the driver is there ({sign}), but {str(error).splitlines()[0]}"
    return f"the driver is there ({sign}), but it shows no GPU; ask for one by --gpus-per-node"


def _driver_sign() -> str | None:
    for path in DRIVER_SIGNS:
        if path.exists():
            return str(path)
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return "libcuda.so.1"
    return None


def form_group(rank: Rank, device: torch.device, limit: timedelta = COLLECTIVE_LIMIT) -> None:
    """Form the default group, NCCL on CUDA and gloo on the CPU; `limit` is that of each collective.

    The group is never destroyed: its destructor can abort or hang a rank that has finished, and after an error the
    peers are still inside a collective. `runtime.exiting.process_exit` ends the process before destructors run.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = device if device.type == "cuda" else None
    store: Store | None = None
    if rank.world_size == 1:
        store = HashStore()
    elif rank.init_file:
        store = FileStore(str(rank.init_file), rank.world_size)
    elif rank.attached and "RANK" not in os.environ:  # by srun, whose variables torch does not read
        store = TCPStore(rank.master_addr, rank.master_port, rank.world_size, is_master=rank.is_main)
    place: dict[str, Any] = {"rank": rank.rank, "world_size": rank.world_size} if store else {}  # else by variables
    dist.init_process_group(backend, store=store, timeout=FORM_LIMIT, device_id=device_id, **place)
    dist.distributed_c10d._set_pg_timeout(limit)  # noqa: SLF001 - torch has no public name for it


def form_control_group(world_size: int) -> dist.ProcessGroup | None:
    """Return one more group of all ranks, by gloo; None where this process is alone."""
    return dist.new_group(backend="gloo", timeout=CONTROL_LIMIT) if world_size > 1 else None


def leave_group(group: dist.ProcessGroup | None) -> None:
    """Wait at the end for all other ranks; not if the program has destroyed its groups."""
    if group is not None and dist.is_initialized():
        dist.barrier(group)


def skip_group_destructors() -> None:
    """Let `destroy_process_group` shut groups down as before, but run none of their destructors.

    The destructor of a gloo group joins its threads while it holds the interpreter lock, and one of them may be waiting
    for that lock (torch 2.13): a rank that had finished hung in `destroy_process_group`, which torch's examples call.
    """

    def wrap(destroy: Callable[..., None]) -> Callable[..., None]:
        def destroy_and_keep(group: dist.ProcessGroup | None = None) -> None:
            _DESTROYED_GROUPS.extend(distributed_c10d._world.pg_map)  # noqa: SLF001 - torch has no public list of them
            destroy(group)

        return destroy_and_keep

    patches.replace(patches.GROUP_DESTRUCTORS, wrap)
