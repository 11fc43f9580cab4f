"""A training of which each part of a step takes time, so that a fault at a random instant meets each part.

phases.py TOTAL PART_S: batch statistics, dropout, AdamW, a schedule, loader workers, augmentation of the batch in the
step. It appends each step it takes, with the time, to $SLURMDDP_RUN_DIR/steps.RANK, behind a line for each start, and
writes the final weights to $SLURMDDP_RUN_DIR/model.pt. A rank that finds $SLURMDDP_RUN_DIR/raise.RANK raises an error
in its forward.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import slurmddp

EVERY_STEPS = int(os.environ.get("EVERY_STEPS", "50"))


class Model(nn.Module):
    def __init__(self, part_s, sign):
        super().__init__()
        self.first, self.norm = nn.Linear(16, 64), nn.BatchNorm1d(64)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(64, 4)
        self._part_s, self._sign = part_s, sign

    def forward(self, inputs):
        hidden = self.drop(self.norm(self.first(inputs)).relu())
        hidden.register_hook(lambda _: time.sleep(self._part_s))
        time.sleep(self._part_s)
        if self._sign.exists():
            self._sign.unlink()
            raise ValueError("asked to raise")
        return self.last(hidden)


def main(total, part_s):
    folder = Path(os.environ["SLURMDDP_RUN_DIR"])
    with slurmddp.init() as ddp:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(203, 16), torch.randn(203, 4))
        model = DistributedDataParallel(Model(part_s, folder / f"raise.{ddp.rank}"), bucket_cap_mb=0.001)
        torch.manual_seed(ddp.rank)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        optimizer.register_step_post_hook(lambda *_: time.sleep(part_s))
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=total + 1)
        sampler = slurmddp.Sampler(len(data), batch_size=4)
        run = slurmddp.Checkpointer(
            model=model, optimizer=optimizer, schedule=schedule, sampler=sampler, every_steps=EVERY_STEPS, keep=2
        )
        batches = iter(DataLoader(data, batch_sampler=sampler, num_workers=2))
        with (folder / f"steps.{ddp.rank}").open("a", buffering=1) as steps:
            steps.write(f"start {time.time()}\n")
            for step in run.steps(total):
                inputs, targets = next(batches)
                inputs += 0.1 * torch.randn_like(inputs)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
                schedule.step()
                time.sleep(part_s)
                steps.write(f"{step} {time.time()}\n")
        if ddp.is_main:
            torch.save(model.module.state_dict(), folder / "model.pt.new")
            (folder / "model.pt.new").replace(folder / "model.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
