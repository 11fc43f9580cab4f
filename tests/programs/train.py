"""A training that would show every lost, repeated or changed step: dropout, batch statistics, momentum, schedule.

train.py TOTAL STEP_S EVERY_STEPS: writes the final weights to $SLURMDDP_RUN_DIR/model.pt, and appends each step it
takes to $SLURMDDP_RUN_DIR/steps.<rank>. A rank that finds $SLURMDDP_RUN_DIR/kill.<rank> dies of kill -9, once. A step
takes a second longer while there is $SLURMDDP_RUN_DIR/slow.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import slurmddp


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(16, 300), nn.BatchNorm1d(300)
        self.drop, self.last, self.aside = nn.Dropout(0.2), nn.Linear(300, 4), nn.Linear(16, 4)

    def forward(self, inputs):
        return self.last(self.drop(self.norm(self.first(inputs)).relu())) + self.aside(inputs)


def die_if_asked(sign):
    if sign.exists():
        sign.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def main(total, step_s, every_steps):
    folder = Path(os.environ["SLURMDDP_RUN_DIR"])
    with slurmddp.init() as ddp:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(203, 16), torch.randn(203, 4), torch.arange(203))
        model = DistributedDataParallel(Model(), bucket_cap_mb=0.001)
        torch.manual_seed(ddp.rank)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=total + 1)
        sampler = slurmddp.Sampler(len(data), batch_size=4)
        run = slurmddp.Checkpointer(
            model=model, optimizer=optimizer, schedule=schedule, sampler=sampler, every_steps=every_steps, keep=2
        )
        workers = int(os.environ.get("WORKERS", "0"))
        method = os.environ.get("METHOD")
        batches = iter(DataLoader(data, batch_sampler=sampler, num_workers=workers, multiprocessing_context=method))
        with (folder / f"steps.{ddp.rank}").open("a", buffering=1) as steps:
            for step in run.steps(total):
                inputs, targets, indices = next(batches)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
                schedule.step()
                time.sleep(step_s + (folder / "slow").exists())
                steps.write(f"{step} {' '.join(map(str, indices.tolist()))}\n")
                die_if_asked(folder / f"kill.{ddp.rank}")
        if ddp.is_main:
            torch.save(model.module.state_dict(), folder / "model.pt.new")
            (folder / "model.pt.new").replace(folder / "model.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
