"""One step of DDP: one_step.py MARK [GO]. Rank 0 writes the time after the step into MARK; all then wait for GO."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.randint(10, (8,))).backward()
optimizer.step()
if dist.get_rank() == 0:
    new = Path(f"{sys.argv[1]}.new")
    new.write_text(str(time.time()))
    new.rename(sys.argv[1])
dist.barrier()
while sys.argv[2:] and not os.path.exists(sys.argv[2]):  # noqa: PTH110 the program of a user
    time.sleep(0.1)
dist.destroy_process_group()
