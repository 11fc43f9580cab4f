"""A training by slurmddp, of 1,000 steps of 0.05 s, in which a rank fails ten times: faulty.py FOLDER.

Rank 1 is killed at five steps and stopped by SIGSTOP at five others, each once. A collective fails after a minute; by
torch's default it is half an hour.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import slurmddp

FAULTS = {step: (signal.SIGKILL, signal.SIGSTOP)[step // 90 % 2] for step in range(90, 990, 90)}
folder = Path(sys.argv[1])
with slurmddp.init("cpu") as ddp:
    group = dist.new_group(timeout=timedelta(minutes=1))
    model = DistributedDataParallel(torch.nn.Linear(256, 256), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = slurmddp.Checkpointer(model=model, optimizer=optimizer, every_steps=20)
    for step in run.steps(1000):
        optimizer.zero_grad()
        model(torch.ones(8, 256)).square().mean().backward()
        optimizer.step()
        time.sleep(0.05)
        if ddp.rank == 1 and step in FAULTS and not (done := folder / str(step)).exists():
            done.touch()
            os.kill(os.getpid(), FAULTS[step])
