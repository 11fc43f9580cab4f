"""Trains until it is told to stop: told.py cpu|cuda WIDTH MARK. Makes MARK when it is in the loop."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp

device, width, mark = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
with slurmddp.init(device) as ddp:  # type: ignore[arg-type]  # one of its words
    layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(4))).to(ddp.device)
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    inputs = torch.randn(64, width, device=ddp.device)
    run = slurmddp.Checkpointer(model=model, optimizer=optimizer)
    for step in run.steps(2**40):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if step == 20:  # noqa: PLR2004 - the first steps are slow
            mark.touch()
