"""A loop by Hugging Face Accelerate, which saves its state after each epoch. Nothing in it is slurmddp's.

slurmddp submit --nodes 2 --gpus-per-node 8 accelerate_loop.py     on a cluster
slurmddp run --ntasks-per-node 2 accelerate_loop.py                on this machine, without a GPU

At a preemption all ranks end at once, and the job comes back by itself. The script starts anew, finds its checkpoint,
and repeats the epoch that was not complete. The result is that of a run without a stop.
"""

import argparse
import os
import shutil
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINTS = Path(os.environ.get("SLURMDDP_CHECKPOINT_DIR", "checkpoints"))


def make_data():
    """Return the same samples on every rank; your data goes here."""
    inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def save(accelerator, epochs_done):
    """Save the state of all ranks; the folder gets its name when it is complete, and the one before goes."""
    unfinished = CHECKPOINTS / "unfinished"
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()  # each rank writes files of its own
    if accelerator.is_main_process:
        before = list(CHECKPOINTS.glob("epoch-*"))
        unfinished.rename(CHECKPOINTS / f"epoch-{epochs_done}")
        for folder in before:
            shutil.rmtree(folder)


def load(accelerator):
    """Load the newest checkpoint, if there is one; return the number of epochs done."""
    epochs = [int(folder.name.removeprefix("epoch-")) for folder in CHECKPOINTS.glob("epoch-*")]
    if not epochs:
        return 0
    accelerator.load_state(str(CHECKPOINTS / f"epoch-{max(epochs)}"))
    return max(epochs)


def main():
    """Train, and print the loss on all samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    order = DataLoaderConfiguration(use_seedable_sampler=True)  # by seed and epoch alone, also after a resume
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=order)
    set_seed(0)
    data = make_data()
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(load(accelerator), args.epochs):
        loader.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        save(accelerator, epoch + 1)
        if accelerator.is_main_process:  # accelerator.print would print once on each node
            print(f"epoch {epoch + 1} of {args.epochs} loss {loss.item():.6f}")

    if accelerator.is_main_process:
        inputs, targets = (part.to(accelerator.device) for part in data.tensors)
        with torch.no_grad():
            loss = nn.functional.mse_loss(accelerator.unwrap_model(model)(inputs), targets).item()
        print(f"final loss {loss:.8f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
