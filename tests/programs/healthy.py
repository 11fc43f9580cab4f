"""A training with long phases in which no step is finished, though nothing hangs: healthy.py PHASE_S PHASE...

Between two phases of PHASE_S seconds each it trains for some steps. Each rank runs it under any launcher.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PHASE_S = float(sys.argv[1])
RUN, RANK = Path(os.environ["SLURMDDP_RUN_DIR"]), int(os.environ["RANK"])


def deadline():
    return time.monotonic() + PHASE_S


def burn(seconds):
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        sum(number * number for number in range(10_000))


class Slow(Dataset):
    """Its first item takes a worker PHASE_S of computing."""

    def __len__(self):  # noqa: D105
        return 4

    def __getitem__(self, index):  # noqa: D105
        burn(PHASE_S if index == 0 else 0)
        return torch.zeros(16)


class Quick(Dataset):
    """Gives an item each tenth of a second."""

    def __len__(self):  # noqa: D105
        return int(10 * PHASE_S)

    def __getitem__(self, index):  # noqa: D105
        time.sleep(0.1)
        return torch.full((16,), float(index))


def validate(model):
    """On rank 0 alone; the others wait in a barrier."""
    if RANK == 0:
        ends_at = deadline()
        with torch.no_grad():
            while time.monotonic() < ends_at:
                model.module(torch.randn(64, 16)).square().mean().item()
    dist.barrier()


def sort(_):
    """In one call, which keeps the interpreter's lock, on rank 0 alone."""
    if RANK == 0:
        ends_at = deadline()
        numbers = list(range(3_000_000))
        while time.monotonic() < ends_at:
            sorted(numbers, key=lambda number: -number)
    dist.barrier()


def hold_lock(_):
    """In a call that lets no other thread of rank 1 run."""
    if RANK == 1:
        begin = time.monotonic()
        sum(range(10_000_000))
        sum(range(int(10_000_000 * PHASE_S / (time.monotonic() - begin))))
    dist.barrier()


def compile_all(_):
    """All ranks wait for a program, which uses the CPU."""
    code = f"import time\nends = time.monotonic() + {PHASE_S}\nwhile time.monotonic() < ends: pass"
    subprocess.run([sys.executable, "-c", code], check=True)


def compile_one(model):
    """Rank 2 alone waits for it, and all others for rank 2."""
    if RANK == 2:
        compile_all(model)
    dist.barrier()


def first_batch(_):
    """The workers of one rank take long for their first batch."""
    if RANK == 1:
        list(DataLoader(Slow(), num_workers=2))
    dist.barrier()


def checkpoint(_):
    """Rank 0 writes slowly."""
    if RANK == 0:
        ends_at = deadline()
        with (RUN / "large").open("wb") as file:
            while time.monotonic() < ends_at:
                file.write(bytes(50_000))
                file.flush()
                time.sleep(0.5)
    dist.barrier()


def accumulate(model):
    """Batches, and no step."""
    for batch in DataLoader(Quick()):
        with model.no_sync():
            model(batch).sum().backward()


def sleep(_):
    """All ranks do nothing at all in the same place."""
    time.sleep(PHASE_S)


def stop(_):
    """All ranks are stopped, as by `scontrol suspend`, and go on at different moments."""
    words = f"kill -STOP {os.getpid()}; sleep {PHASE_S + RANK / 2}; kill -CONT {os.getpid()}"
    with subprocess.Popen(["sh", "-c", words]):
        pass
    dist.barrier()


def gather(_):
    """Much data moves between the ranks, for long, in collectives alone."""
    ends_at, part = deadline(), torch.zeros(500_000)
    is_over = torch.zeros(1)
    while not is_over:
        dist.all_reduce(part)
        is_over[0] = time.monotonic() > ends_at
        dist.broadcast(is_over, 0)


PHASES = {
    "validate": validate,
    "sort": sort,
    "lock": hold_lock,
    "compile-all": compile_all,
    "compile-one": compile_one,
    "first-batch": first_batch,
    "checkpoint": checkpoint,
    "accumulate": accumulate,
    "sleep": sleep,
    "stop": stop,
    "gather": gather,
}


def main(phases):
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for phase in phases:
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
            time.sleep(0.05)
        PHASES[phase](model)
    dist.barrier()
    dist.destroy_process_group()
    if RANK == 0:  # the others have ended
        burn(PHASE_S)


if __name__ == "__main__":
    main(sys.argv[2:] or [*PHASES])
