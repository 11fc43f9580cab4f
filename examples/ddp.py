"""Plain DistributedDataParallel, with a checkpoint of its own after each epoch. Nothing in it is slurmddp's.

slurmddp submit --nodes 2 --gpus-per-node 8 ddp.py     on a cluster
slurmddp run --ntasks-per-node 2 ddp.py                on this machine, without a GPU
torchrun --nproc-per-node 2 ddp.py                     the same, without slurmddp

At a preemption all ranks end at once, and the job comes back by itself. The script starts anew, finds its checkpoint,
and repeats the epoch that was not complete. The result is that of a run without a stop.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHECKPOINT = Path(os.environ.get("SLURMDDP_CHECKPOINT_DIR", "checkpoints"), "last.pt")


def make_data():
    """Return the same samples on every rank; your data goes here."""
    inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def choose_device():
    """Return this rank's GPU and make it current; the CPU where there is no GPU."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def save(model, optimizer, epochs_done):
    """Replace the checkpoint as a whole: whoever is killed meanwhile leaves the old one."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    new = CHECKPOINT.with_suffix(".new")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs_done": epochs_done}, new)
    new.replace(CHECKPOINT)


def load(model, optimizer, device):
    """Load the checkpoint, if there is one; return the number of epochs done."""
    if not CHECKPOINT.exists():
        return 0
    state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs_done"]


def main():
    """Train, and print the loss on all samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    device = choose_device()
    dist.init_process_group()
    torch.manual_seed(0)
    data = make_data()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    start = load(model, optimizer, device)
    ddp_model = DistributedDataParallel(model)
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)  # another order in each epoch, the same after a resume
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(ddp_model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            save(model, optimizer, epoch + 1)
            print(f"epoch {epoch + 1} of {args.epochs} loss {loss.item():.6f}")

    if dist.get_rank() == 0:
        inputs, targets = (part.to(device) for part in data.tensors)
        with torch.no_grad():
            print(f"final loss {nn.functional.mse_loss(model(inputs), targets).item():.8f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
