"""The training of resumable.py by torch alone, with a checkpoint each 20 steps by torch.save: plain.py FOLDER."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from dying import die_if_asked
from torch.nn.parallel import DistributedDataParallel

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
saved = folder / "plain.pt"
first = 0
if saved.exists():
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    first = state["step"]
with (folder / f"steps.{dist.get_rank()}").open("a", buffering=1) as steps:
    for step in range(first, 2000):
        optimizer.zero_grad()
        model(torch.ones(8, 256)).square().mean().backward()
        optimizer.step()
        steps.write(f"{time.time()}\n")
        time.sleep(0.05)
        if step % 20 == 0 and dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, folder / "plain.pt.new")
            (folder / "plain.pt.new").replace(saved)
        die_if_asked(folder, dist.get_rank())
