"""A model that no rank holds whole: torch's `fully_shard` (FSDP2), with slurmddp's own loop. Needs torch 2.6 or newer.

slurmddp submit --nodes 2 --gpus-per-node 8 fsdp2.py     on a cluster
slurmddp run --ntasks-per-node 2 fsdp2.py                on this machine, without a GPU

At a preemption all ranks finish the same step, each saves its own pieces of model and optimizer, and the job comes back
by itself. It goes on at the next step. The result is that of a run without a stop. On another number of ranks the
pieces are divided anew.
"""

import argparse

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import slurmddp


def make_data():
    """Return the same samples on every rank; your data goes here."""
    inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


class Net(nn.Module):
    """A small model of several blocks; yours goes here."""

    def __init__(self, width=64, depth=3):
        super().__init__()
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, inputs):
        """Return a number for each sample."""
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = hidden + block(hidden.relu())
        return self.last(hidden)


def train(ddp, args):
    """Train, save the whole model, and print its loss on all samples."""
    torch.manual_seed(0)
    data = make_data()
    model = Net().to(ddp.device)
    mesh = init_device_mesh(ddp.device.type, (ddp.world_size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)  # after fully_shard: of the pieces of this rank
    sampler = slurmddp.Sampler(len(data), batch_size=64)

    run = slurmddp.Checkpointer(model=model, optimizer=optimizer, sampler=sampler, every_s=300)
    batches = iter(DataLoader(data, batch_sampler=sampler))
    for step in run.steps(epochs=args.epochs):
        inputs, targets = (part.to(ddp.device) for part in next(batches))
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            run.log(loss=loss.item())
            ddp.print(f"step {step} loss {loss.item():.6f}")

    weights = slurmddp.full_state_dict(model)  # by all ranks; rank 0 gets the weights, of which the others hold a part
    if ddp.is_main:
        if ddp.run_dir:
            torch.save(weights, ddp.run_dir.model)
        whole = Net()
        whole.load_state_dict(weights)
        inputs, targets = data.tensors
        with torch.no_grad():
            ddp.print(f"final loss {nn.functional.mse_loss(whole(inputs), targets).item():.8f}")


def main():
    """Read the arguments and join the other ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.001)
    args = parser.parse_args()
    with slurmddp.init() as ddp:
        train(ddp, args)


if __name__ == "__main__":
    main()
