"""A training of which one rank's backward can be slowed down: slow.py STEPS PAUSE_S [RANK DELAY_S]."""

import sys
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp


def main(steps, pause_s, slow_rank=-1, delay_s=0.0):
    with slurmddp.init("cpu") as ddp:
        torch.manual_seed(0)
        net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
        if ddp.rank == slow_rank:
            net[4].register_full_backward_hook(lambda *_: time.sleep(delay_s))
        model = DistributedDataParallel(net)
        model._set_ddp_runtime_logging_sample_rate(5)  # else each hundredth, and the program would take long
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.randn(64, 256)
        run = slurmddp.Checkpointer(model=model, optimizer=optimizer)
        for _ in run.steps(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            time.sleep(pause_s)


if __name__ == "__main__":
    main(int(sys.argv[1]), *(kind(word) for kind, word in zip((float, int, float), sys.argv[2:], strict=False)))
