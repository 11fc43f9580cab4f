"""Trains by Hugging Face Accelerate, saving its state after each epoch.

accelerate_loop.py EPOCHS FOLDER SECONDS_A_STEP
"""

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Epochs:
    """Counts the epochs, has the last loss, and is saved with the rest."""

    def __init__(self):
        self.done, self.loss = 0, torch.zeros(())

    def state_dict(self):
        return {"done": self.done, "loss": self.loss}

    def load_state_dict(self, state):
        self.done, self.loss = state["done"], state["loss"]


def newest(folder):
    """Return the newest checkpoint that was finished."""
    found = sorted(folder.glob("epoch-*/finished"), key=lambda path: int(path.parent.name.removeprefix("epoch-")))
    return found[-1].parent if found else None


def main(epochs, folder, step_s):
    order = DataLoaderConfiguration(use_seedable_sampler=True)  # by the epoch, also of a resumed run
    accelerator = Accelerator(cpu=True, dataloader_config=order)
    place = f"rank {accelerator.process_index} of {accelerator.num_processes}, local {accelerator.local_process_index}"
    print(f"{place}, {accelerator.device.type}", flush=True)
    set_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    progress = Epochs()
    accelerator.register_for_checkpointing(progress)
    found = newest(Path(folder))
    if found:
        accelerator.load_state(str(found))
        accelerator.print(f"resumed at {progress.done}", flush=True)
    while progress.done < int(epochs):
        loader.set_epoch(progress.done)
        for inputs, targets in loader:
            time.sleep(float(step_s) + Path("slow").exists())
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        progress.done, progress.loss = progress.done + 1, loss.detach()
        place = Path(folder) / f"epoch-{progress.done}"
        accelerator.save_state(str(place))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            (place / "finished").touch()
            print(f"epoch {progress.done} done", flush=True)
    mean = accelerator.reduce(progress.loss, "mean").item()
    accelerator.print(f"final loss {mean!r}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
