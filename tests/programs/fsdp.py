"""A training whose state no rank has whole: fsdp.py fsdp|hsdp|zero TOTAL STEP_S EVERY_STEPS.

Sizes that no number of ranks divides, dropout, batch statistics, momentum, schedule; with $EVEN only what gives the
same numbers on any ranks, and 16 samples a step. Writes the final weights to $SLURMDDP_RUN_DIR/model.pt, and appends
each step it takes to $SLURMDDP_RUN_DIR/steps.<rank>. A rank that finds $SLURMDDP_RUN_DIR/kill.<rank> dies of kill -9,
once.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import slurmddp

EVEN = bool(os.environ.get("EVEN"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(16, 301), nn.Identity() if EVEN else nn.BatchNorm1d(301)
        self.drop, self.last, self.aside = nn.Dropout(0.0 if EVEN else 0.2), nn.Linear(301, 3), nn.Linear(16, 3)

    def forward(self, inputs):
        return self.last(self.drop(self.norm(self.first(inputs)).relu())) + self.aside(inputs)


def divided(kind, model):
    """Return the model and the optimizer, of which each rank holds a part."""
    if kind == "zero":
        model = DistributedDataParallel(model, bucket_cap_mb=0.001)
        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    sizes = {"replicate": 2, "shard": 2} if kind == "hsdp" else {"shard": dist.get_world_size()}
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    for part in (model.first, model.last, model):
        fully_shard(part, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def die_if_asked(sign):
    if sign.exists():
        sign.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def main(kind, total, step_s, every_steps):
    folder = Path(os.environ["SLURMDDP_RUN_DIR"])
    with slurmddp.init("cpu") as ddp:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(203, 16), torch.randn(203, 3), torch.arange(203))
        model, optimizer = divided(kind, Model())
        torch.manual_seed(ddp.rank)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.7)
        sampler = slurmddp.Sampler(len(data), batch_size=16 // ddp.world_size if EVEN else 4)
        run = slurmddp.Checkpointer(
            model=model, optimizer=optimizer, schedule=schedule, sampler=sampler, every_steps=every_steps
        )
        batches = iter(DataLoader(data, batch_sampler=sampler))
        with (folder / f"steps.{ddp.rank}").open("a", buffering=1) as steps:
            for step in run.steps(total):
                inputs, targets, indices = next(batches)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
                schedule.step()
                time.sleep(step_s + (folder / "slow").exists())
                die_if_asked(folder / f"kill.{ddp.rank}")
                steps.write(f"{step} {' '.join(map(str, indices.tolist()))}\n")
        weights = slurmddp.full_state_dict(model)
        if ddp.is_main:
            torch.save(weights, folder / "model.pt.new")
            (folder / "model.pt.new").replace(folder / "model.pt")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
