"""Forms a group of one rank: one_group.py slurmddp|torch cpu|cuda. Prints the seconds of it and of two all-reduces."""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch
import torch.distributed as dist

import slurmddp

way, device = sys.argv[1:]
init = slurmddp.init  # imports what it needs, which is not measured


def lap_s(work: Callable[[], object]) -> float:
    """Return the seconds until some work is done on the device."""
    begin = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def form() -> None:
    """Form the group by torch alone."""
    here = torch.device("cuda", 0) if device == "cuda" else None
    store = dist.HashStore()
    dist.init_process_group("nccl" if here else "gloo", store=store, rank=0, world_size=1, device_id=here)


total = torch.ones(2**20, device=device)  # the CUDA context is no part of what is measured
with ExitStack() as stack:
    formed_s = lap_s((lambda: stack.enter_context(init(device))) if way == "slurmddp" else form)  # type: ignore[arg-type]
    print("LAPS", formed_s, *(lap_s(lambda: dist.all_reduce(total)) for _ in range(2)))
