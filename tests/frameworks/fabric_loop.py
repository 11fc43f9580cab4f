"""Trains by Lightning Fabric, with a checkpoint of its own after each epoch.

Fabric counts a loader's epochs from its making, also in a resumed run: so each epoch has its own.

fabric_loop.py EPOCHS FILE SECONDS_A_STEP
"""

import os
import sys
import time
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(epochs, file, step_s):
    devices, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=devices, num_nodes=nodes)
    fabric.launch()
    print(f"rank {fabric.global_rank} of {fabric.world_size}, local {fabric.local_rank}, {fabric.device}", flush=True)
    fabric.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    model = nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    if Path(file).exists():
        fabric.load(file, state)
        fabric.print(f"resumed at {state['epoch']}", flush=True)
    while state["epoch"] < int(epochs):
        sampler = DistributedSampler(data, fabric.world_size, fabric.global_rank, seed=state["epoch"])
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        for inputs, targets in fabric.setup_dataloaders(loader, use_distributed_sampler=False):
            time.sleep(float(step_s) + Path("slow").exists())
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
        state["epoch"] += 1
        fabric.save(file, state)
        fabric.print(f"epoch {state['epoch']} done", flush=True)
    fabric.print(f"final loss {fabric.all_reduce(loss.detach()).item()!r}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
