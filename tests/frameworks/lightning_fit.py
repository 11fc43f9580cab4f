"""Trains by PyTorch Lightning's Trainer: lightning_fit.py EPOCHS FOLDER SECONDS_A_STEP [last|default|wandb].

Without an option it keeps no checkpoint, and its batches know where they stand. With `last` the script is the usual
one: ModelCheckpoint's last, and a DataLoader, which Lightning begins anew in the middle of an epoch. With `default`
Lightning saves each epoch into a folder that is new at each start. With `wandb` it logs there.
"""

import os
import sys
import time
from pathlib import Path

import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self, step_s):
        super().__init__()
        self.layer, self.step_s = nn.Linear(8, 1), step_s

    def training_step(self, batch):
        time.sleep(self.step_s + Path("slow").exists())
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_start(self):
        trainer = self.trainer
        print(f"rank {self.global_rank} of {trainer.world_size}, local {self.local_rank}, {self.device}", flush=True)
        print(
            f"started at step {trainer.global_step} by {type(trainer.strategy.cluster_environment).__name__}",
            flush=True,
        )

    def on_train_epoch_end(self):
        self.print(f"epoch {self.current_epoch + 1} done", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


class Batches:
    """A rank's batches of each epoch, in another order each time; goes on in the middle of one."""

    def __init__(self, data, size):
        self.data, self.size = data, size
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.epoch = self.taken = 0

    def __len__(self):
        """Return this rank's batches of an epoch."""
        return len(self.data) // (self.size * self.world_size)

    def __iter__(self):
        """Yield those of this epoch that are left."""
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(self.epoch))
        for indices in order[self.rank :: self.world_size].split(self.size)[self.taken :]:
            self.taken += 1
            if self.taken == len(self):
                self.epoch, self.taken = self.epoch + 1, 0
            yield self.data[indices]

    def state_dict(self):
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state):
        self.epoch, self.taken = state["epoch"], state["taken"]


def main(epochs, folder, step_s, option=""):
    resume = option if option == "last" else ""
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    keeps = [ModelCheckpoint(dirpath=folder, save_last=True, every_n_epochs=4)] if resume else []
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_epochs=int(epochs),
        callbacks=keeps,
        enable_checkpointing=bool(keeps) or option == "default",
        default_root_dir=f"{folder}/{os.environ['SLURMDDP_ATTEMPT']}" if option == "default" else folder,
        logger=option == "default" or (option == "wandb" and WandbLogger(project="tracked", save_dir=folder)),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = DataLoader(data, batch_size=4, shuffle=True) if resume else Batches(data, 4)
    trainer.fit(Regression(float(step_s)), batches, ckpt_path=resume or None)
    if trainer.is_global_zero:
        print(f"final loss {trainer.callback_metrics['loss'].item()!r} at step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
