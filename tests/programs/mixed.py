"""A training with much that a checkpoint could miss: mixed.py STOP_AT; -1 for a calm one.

A compiled model, wrapped once more; a second model with buffers of its own on each rank; masters in fp32 of bf16
weights; two loops with randomness between them; a save by hand in the middle of a step.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.middle = nn.Linear(16, 300), nn.BatchNorm1d(300), nn.Linear(300, 300)
        self.last, self.aside = nn.Linear(300, 4), nn.Linear(16, 4)
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, inputs):
        self.count += 1
        hidden = self.middle(self.norm(self.first(inputs)).relu()).relu()
        return self.last(hidden) + self.aside(inputs) * (1 + self.count * 1e-3)


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs)


class Masters(torch.optim.Optimizer):
    """Plain descent on fp32 copies of the weights."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            master = self.state[parameter].setdefault("master", parameter.detach().float())
            master -= 1e-3 * parameter.grad.float()
            parameter.copy_(master)


def main(stop_at):
    torch._dynamo.config.optimize_ddp = False
    with slurmddp.init("cpu") as ddp:
        torch.manual_seed(0)
        small = nn.Linear(16, 16, bias=False).bfloat16()
        model = Wrapped(DistributedDataParallel(torch.compile(Net(), backend="eager"), bucket_cap_mb=0.001))
        second = DistributedDataParallel(Net(), bucket_cap_mb=0.001, broadcast_buffers=False)
        torch.manual_seed(ddp.rank)
        optimizers = [torch.optim.Adam(part.parameters(), lr=0.01) for part in (model, second)] + [
            Masters(small.parameters())
        ]
        named = {f"optimizer{number}": optimizer for number, optimizer in enumerate(optimizers)}
        run = slurmddp.Checkpointer(model=model, second=second, small=small, every_steps=1000, **named)
        for total in (6, 12):
            for step in run.steps(total):
                if step == stop_at:
                    os.kill(os.getpid(), signal.SIGUSR2)
                    time.sleep(0.2)
                for optimizer in optimizers:
                    optimizer.zero_grad()
                inputs = torch.randn(8, 16)
                loss = model(inputs).square().mean() + second(inputs).square().mean()
                (loss + small(torch.ones(16).bfloat16()).sum().float()).backward()
                for optimizer in optimizers:
                    optimizer.step()
                if step == 4:
                    run.save()
            torch.randn(3)
        states = [part.state_dict() for part in (model, second, small)]
        torch.save(states, Path(os.environ["SLURMDDP_RUN_DIR"]) / f"end.{ddp.rank}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
