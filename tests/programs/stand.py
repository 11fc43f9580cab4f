"""A training of which rank 1 blocks in a file, while the other ranks wait for it in a collective."""

import os
from pathlib import Path

import torch
import torch.distributed as dist

RUN = Path(os.environ["SLURMDDP_RUN_DIR"])


def load():
    os.mkfifo(RUN / "fifo")
    open(RUN / "fifo")  # noqa: PTH123, SIM115 - it has no frame of Python


def train():
    if dist.get_rank() == 1:
        load()
    dist.all_reduce(torch.zeros(1))


dist.init_process_group("gloo")
train()
