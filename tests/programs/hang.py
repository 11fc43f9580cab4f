"""A training that hangs at its fifth step, once, in one of many ways: hang.py KIND steps|plain [TOTAL].

With `steps` it is one of `run.steps`, which resumes; with `plain` one of DistributedDataParallel alone. Rank 1 of four
is the one that hangs; it writes when to $SLURMDDP_RUN_DIR/hung. At the end rank 0 saves $SLURMDDP_RUN_DIR/model.pt.
KIND `none` does not hang: rank 1 computes for nine seconds, and the others wait.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import slurmddp

RUN = Path(os.environ["SLURMDDP_RUN_DIR"])
RANK = int(os.environ["RANK"])
FAULT, ODD, STEP_S, COMPUTES_S = 5, 1, 0.1, 9
KIND = sys.argv[1]


def load():
    time.sleep(3600)


def collective():
    dist.all_gather([torch.zeros(3) for _ in range(4)], torch.zeros(3))


def spin():
    never = []
    while not never:
        pass


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def lock():
    ctypes.PyDLL(None).sleep(3600)  # it keeps the interpreter's lock


def read():
    os.mkfifo(RUN / "fifo")
    (RUN / "fifo").read_bytes()


def write():
    os.mkfifo(RUN / "fifo")
    torch.save({"a": torch.zeros(3)}, RUN / "fifo")


def compute():
    ends_at = time.monotonic() + COMPUTES_S
    while time.monotonic() < ends_at:
        torch.randn(64, 64).square().mean().item()


class LeftError(Exception):
    pass


def leave():
    raise LeftError


class Data(Dataset):
    """Its item of the fifth step never comes from the loader's worker."""

    def __len__(self):  # noqa: D105
        return 10**6

    def __getitem__(self, index):  # noqa: D105
        if KIND == "worker" and index == FAULT - 1 and RANK == ODD and hangs_now():
            time.sleep(3600)
        torch.manual_seed(index * 4 + RANK)
        return torch.randn(4, 16), torch.randn(4, 4)


FAULTS = {
    "sleep": load,
    "collective": collective,
    "leave": leave,
    "spin": spin,
    "stop": stop,
    "lock": lock,
    "read": read,
    "write": write,
}


def hangs_now():
    """Return whether this is the start that hangs, and say when."""
    if (RUN / "hung").exists() or KIND == "none":
        return False
    (RUN / "hung").write_text(f"{time.time()}")
    return True


def step_of(model, optimizer, step, batch):
    if step == FAULT and RANK == ODD and KIND == "none":
        compute()
        (RUN / "computed").touch()
    if step == FAULT and RANK == ODD and KIND in FAULTS and hangs_now():
        FAULTS[KIND]()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch[0][0]), batch[1][0]).backward()
    optimizer.step()
    time.sleep(STEP_S)


def make():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 4))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def batches(first):
    return iter(
        DataLoader(Data(), sampler=range(first, 10**6), num_workers=int(KIND == "worker"), prefetch_factor=None)
    )


def train_by_steps(total):
    with slurmddp.init():
        model, optimizer = make()
        run = slurmddp.Checkpointer(model=model, optimizer=optimizer, every_steps=3)
        loader = None
        try:
            for step in run.steps(total):
                loader = loader or batches(step - 1)
                step_of(model, optimizer, step, next(loader))
        except LeftError:
            pass
        save(model)


def train_plainly(total):
    dist.init_process_group("gloo")
    model, optimizer = make()
    loader = batches(0)
    try:
        for step in range(1, total + 1):
            step_of(model, optimizer, step, next(loader))
    except LeftError:
        pass
    save(model)
    dist.barrier()
    dist.destroy_process_group()


def save(model):
    if RANK == 0:
        torch.save(model.module.state_dict(), RUN / "model.pt.new")
        (RUN / "model.pt.new").replace(RUN / "model.pt")


if __name__ == "__main__":
    total = int(sys.argv[3]) if sys.argv[3:] else 12
    (train_by_steps if sys.argv[2] == "steps" else train_plainly)(total)
