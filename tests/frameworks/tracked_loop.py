"""A training as in the README, logged by wandb or mlflow on rank 0: tracked_loop.py TRACKER TOTAL STEP_S.

Writes the final weights to model.pt in the run's folder, and appends each step it takes to steps.
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


def start_tracker(name):
    """Return the function that logs a loss."""
    if name == "wandb":
        import wandb  # noqa: PLC0415 - one of them is installed

        run = wandb.init(project="tracked")
        return lambda step, loss: run.log({"loss": loss}, step=step)
    if name == "mlflow":
        import mlflow  # noqa: PLC0415 - the same

        mlflow.start_run()
        return lambda step, loss: mlflow.log_metric("loss", loss, step=step)
    return lambda *_: None


def main(tracker, total, step_s):
    folder = Path(os.environ["SLURMDDP_RUN_DIR"])
    with slurmddp.init() as ddp:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(203, 16), torch.randn(203, 1))
        model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 30), nn.Dropout(0.2), nn.Linear(30, 1)))
        torch.manual_seed(ddp.rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        sampler = slurmddp.Sampler(len(data), batch_size=4)
        run = slurmddp.Checkpointer(model=model, optimizer=optimizer, sampler=sampler)
        batches = iter(DataLoader(data, batch_sampler=sampler))
        log = start_tracker(tracker if ddp.is_main else "none")
        with (folder / f"steps.{ddp.rank}").open("a", buffering=1) as steps:
            for step in run.steps(total):
                inputs, targets = next(batches)
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(inputs), targets)
                loss.backward()
                optimizer.step()
                log(step, loss.item())
                steps.write(f"{step}\n")
                time.sleep(step_s)
        if ddp.is_main:
            torch.save(model.module.state_dict(), folder / "model.pt")


main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
