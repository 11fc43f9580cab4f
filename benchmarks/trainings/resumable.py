"""A training by slurmddp, of 2,000 short steps: resumable.py FOLDER. Rank 0 writes the time of each step into FOLDER.

Rank 1 ends by kill -9 when there is FOLDER/kill, and writes the time.
"""

import sys
import time
from pathlib import Path

import torch
from dying import die_if_asked
from torch.nn.parallel import DistributedDataParallel

import slurmddp

folder = Path(sys.argv[1])
with slurmddp.init("cpu") as ddp:
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = slurmddp.Checkpointer(model=model, optimizer=optimizer, every_steps=20)
    with (folder / f"steps.{ddp.rank}").open("a", buffering=1) as steps:
        for _ in run.steps(2000):
            optimizer.zero_grad()
            model(torch.ones(8, 256)).square().mean().backward()
            optimizer.step()
            steps.write(f"{time.time()}\n")
            time.sleep(0.05)
            die_if_asked(folder, ddp.rank)
