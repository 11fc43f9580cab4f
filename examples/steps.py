"""DistributedDataParallel with slurmddp's own loop: no step is lost, none is taken twice.

slurmddp submit --nodes 2 --gpus-per-node 8 steps.py     on a cluster
slurmddp run --ntasks-per-node 2 steps.py                on this machine, without a GPU

At a preemption all ranks finish the same step, its state is saved, and the job comes back by itself. It goes on at the
next step, in the middle of an epoch. The result is that of a run without a stop. After `kill -9` or a lost node it goes
on from the last of the checkpoints that `every_s` asks for.
"""

import argparse

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import slurmddp


def make_data():
    """Return the same samples on every rank; your data goes here."""
    inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def train(ddp, args):
    """Train, save the model, and print the loss on all samples."""
    torch.manual_seed(args.seed)
    data = make_data()
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)).to(ddp.device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)
    sampler = slurmddp.Sampler(len(data), batch_size=64)  # this rank's batches, in another order in each epoch
    torch.manual_seed(ddp.rank)  # each rank drops out other units

    # Restores the newest checkpoint: after all that it saves, before the loader's iterator.
    run = slurmddp.Checkpointer(model=model, optimizer=optimizer, schedule=schedule, sampler=sampler, every_s=300)
    batches = iter(DataLoader(data, batch_sampler=sampler))
    for step in run.steps(epochs=args.epochs):
        inputs, targets = (part.to(ddp.device) for part in next(batches))
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            run.log(loss=loss.item())  # into events.jsonl, for `slurmddp status` and `slurmddp report`
            ddp.print(f"step {step} loss {loss.item():.6f}")

    if ddp.is_main:
        if ddp.run_dir:
            torch.save(net.state_dict(), ddp.run_dir.model)
        net.eval()
        inputs, targets = (part.to(ddp.device) for part in data.tensors)
        with torch.no_grad():
            ddp.print(f"final loss {nn.functional.mse_loss(net(inputs), targets).item():.8f}")


def main():
    """Read the arguments and join the other ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)  # of the first weights
    args = parser.parse_args()
    with slurmddp.init() as ddp:  # this rank's device, and the process group
        train(ddp, args)


if __name__ == "__main__":
    main()
