"""Trains by Lightning Fabric, with a checkpoint of its own after each epoch.

fabric_loop.py EPOCHS FILE SECONDS_A_STEP
"""

import os
import sys
import time
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(epochs, file, step_s):
    devices, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=devices, num_nodes=nodes)
    fabric.launch()
    print(f"rank {fabric.global_rank} of {fabric.world_size}, local {fabric.local_rank}, {fabric.device}", flush=True)
    fabric.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    model = nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=4, shuffle=True))
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    if Path(file).exists():
        fabric.load(file, state)
        fabric.print(f"resumed at {state['epoch']}", flush=True)
    while state["epoch"] < int(epochs):
        loader.sampler.set_epoch(state["epoch"])
        for inputs, targets in loader:
            time.sleep(float(step_s))
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
