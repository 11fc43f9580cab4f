"""PyTorch Lightning's Trainer. Nothing in it is slurmddp's.

slurmddp submit --nodes 2 --gpus-per-node 8 lightning_fit.py     on a cluster
slurmddp run --ntasks-per-node 2 lightning_fit.py                on this machine, without a GPU

At a preemption all ranks finish the same step, slurmddp has Lightning save it, and the job comes back by itself.
`ckpt_path="last"` goes on at the next step. In the middle of an epoch a plain DataLoader begins its order anew: some
samples come twice, others not at all. torchdata's StatefulDataLoader goes on exactly. After `kill -9` or a lost node
the last epoch's checkpoint counts.
"""

import argparse
import os

import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINTS = os.environ.get("SLURMDDP_CHECKPOINT_DIR", "checkpoints")


def make_data():
    """Return the same samples on every rank; your data goes here."""
    inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


class Regression(lightning.LightningModule):
    """A small model; yours goes here."""

    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch):
        """Return the loss of a batch."""
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        """Print how far it is."""
        self.print(f"epoch {self.current_epoch + 1} loss {self.trainer.callback_metrics['loss']:.6f}")

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def main():
    """Train, and print the loss on all samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    lightning.seed_everything(0)
    data = make_data()
    trainer = lightning.Trainer(
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),  # ranks of a node, and nodes, as the job has them
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_epochs=args.epochs,
        callbacks=[ModelCheckpoint(dirpath=CHECKPOINTS, save_last=True)],
        default_root_dir=CHECKPOINTS,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Regression(args.lr)
    trainer.fit(model, DataLoader(data, batch_size=64, shuffle=True), ckpt_path="last")
    if trainer.is_global_zero:
        inputs, targets = data.tensors
        with torch.no_grad():
            loss = nn.functional.mse_loss(model.cpu().net(inputs), targets).item()
        print(f"final loss {loss:.8f} at step {trainer.global_step}")


if __name__ == "__main__":
    main()
