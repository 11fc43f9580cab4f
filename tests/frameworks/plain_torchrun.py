"""Trains as torch's tutorials do under torchrun: plain_torchrun.py EPOCHS SNAPSHOT [SECONDS_A_STEP].

torchrun --nnodes 2 --nproc-per-node 2 plain_torchrun.py 8 snapshot.pt
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, data, optimizer, snapshot):
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.model, self.data, self.optimizer, self.snapshot = model, data, optimizer, Path(snapshot)
        self.epochs_run = 0
        if self.snapshot.exists():
            self.load()
        self.model = DistributedDataParallel(self.model)

    def load(self):
        state = torch.load(self.snapshot, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epochs_run = state["epochs_run"]
        print(f"resumed at {self.epochs_run}", flush=True)

    def save(self):
        new = self.snapshot.with_suffix(".new")
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"epochs_run": self.epochs_run}, new)
        new.replace(self.snapshot)

    def train(self, epochs, step_s):
        while self.epochs_run < epochs:
            self.data.sampler.set_epoch(self.epochs_run)
            for inputs, targets in self.data:
                loss = nn.functional.mse_loss(self.model(inputs), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(step_s + Path("slow").exists())
            self.epochs_run += 1
            if self.rank == 0:
                self.save()
                print(f"epoch {self.epochs_run} done", flush=True)
        return loss


def main(epochs, snapshot, step_s="0"):
    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, local {os.environ['LOCAL_RANK']}, cpu", flush=True)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = nn.Linear(8, 1)
    trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), snapshot)
    loss = trainer.train(int(epochs), float(step_s))
    dist.all_reduce(loss.detach())
    if dist.get_rank() == 0:
        print(f"final loss {loss.item()!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
