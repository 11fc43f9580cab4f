"""Chooses the device and forms the process group. Refuses what would train on the wrong device in silence."""

import ctypes
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore

from slurmddp.errors import RankError
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.launch.rank import Rank

FORM_LIMIT = timedelta(seconds=60)
"""For the group to form; every rank has just been met, so that only the network can be slow."""
COLLECTIVE_LIMIT = timedelta(minutes=10)
"""For each collective afterwards; torch's default for NCCL."""

DRIVER_SIGNS = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"))
HIDDEN = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that say: no GPU."""


def choose_device(
    requested: Literal["auto", "cpu", "cuda"], rank: Rank, environment: Mapping[str, str] = os.environ
) -> torch.device:
    """Return this rank's device and make it current.

    `auto` is CUDA where it works, and the CPU where there is no driver at all, with a line from rank 0. Raises
    RankError when a driver is there but CUDA does not work, or when the GPUs are too few or more than Slurm gave.
    """
    if requested == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        _check_count(torch.cuda.device_count(), rank, environment)
        device = torch.device("cuda", rank.local_rank)
        torch.cuda.set_device(device)
        return device
    why = _broken(environment)
    if requested == "cuda" or why:
        raise RankError(f"no CUDA on {rank.host}: {why or 'there is no NVIDIA driver'}; or ask for --device cpu")
    if rank.is_main:
        print_line("WARNING: no GPU for this job: training on the CPU")
    return torch.device("cpu")


def _broken(environment: Mapping[str, str]) -> str:
    """Return what is wrong with a driver that is there; empty when there is none, or its GPUs are hidden."""
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
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return "libcuda.so.1"


def _check_count(visible: int, rank: Rank, environment: Mapping[str, str]) -> None:
    given = environment.get("SLURM_GPUS_ON_NODE", "")
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


def form(rank: Rank, device: torch.device) -> None:
    """Form the default group, NCCL on CUDA and gloo on the CPU.

    It is never destroyed: its destructor can abort or hang a rank that has finished, and on an error the peers are
    still inside a collective. `slurmddp.runtime.exiting.process_exit` ends the process before any destructor runs.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = device if device.type == "cuda" else None
    if rank.world_size == 1:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, device_id=device_id)
        return
    store = FileStore(str(rank.init_file), rank.world_size) if rank.init_file else None
    dist.init_process_group(
        backend,
        store=store,
        rank=rank.rank if store else -1,
        world_size=rank.world_size if store else -1,
        timeout=FORM_LIMIT,
        device_id=device_id,
    )
    dist.distributed_c10d._set_pg_timeout(COLLECTIVE_LIMIT)  # noqa: SLF001 - torch has no public name for it


def leave(group: dist.ProcessGroup | None) -> None:
    """Wait for the others at the end, as long as they live; a program that has destroyed its groups is alone."""
    if group is not None and dist.is_initialized():
        dist.barrier(group)
