"""Hugging Face's Trainer. Nothing in it is slurmddp's.

slurmddp submit --nodes 2 --gpus-per-node 8 huggingface_trainer.py     on a cluster
slurmddp run --ntasks-per-node 2 huggingface_trainer.py                on this machine, without a GPU

At a preemption all ranks finish the same step, slurmddp has Trainer save it as its own `checkpoint-N`, and the job
comes back by itself. `train` goes on at the next step, with the same order of the samples. The result is that of a run
without a stop. After `kill -9` or a lost node the last epoch's checkpoint counts.
"""

import argparse
import os

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

CHECKPOINTS = os.environ.get("SLURMDDP_CHECKPOINT_DIR", "checkpoints")


def make_data():
    """Return the same samples on every rank; your data goes here."""
    inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
    return [{"inputs": row, "labels": row.sin().sum(dim=0, keepdim=True)} for row in inputs]


class Regression(nn.Module):
    """A small model; yours goes here."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, inputs, labels):
        """Return the loss, which Trainer wants, and the outputs."""
        outputs = self.net(inputs)
        return {"loss": nn.functional.mse_loss(outputs, labels), "outputs": outputs}


class Progress(TrainerCallback):
    """Prints how far the training is."""

    def on_epoch_end(self, args, state, control, **more):
        """Print the number of the epoch."""
        if state.is_world_process_zero:
            print(f"epoch {round(state.epoch)} of {state.num_train_epochs}")


def main():
    """Train, and print the loss on all samples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()

    set_seed(0)
    args = TrainingArguments(
        output_dir=CHECKPOINTS,
        use_cpu=not torch.cuda.is_available(),
        num_train_epochs=options.epochs,
        learning_rate=options.lr,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=64,
        save_strategy="epoch",
        save_total_limit=2,
        ddp_find_unused_parameters=False,
        seed=0,
        report_to=[],
        disable_tqdm=True,
    )
    data = make_data()
    trainer = Trainer(Regression(), args, train_dataset=data, eval_dataset=data, callbacks=[Progress()])
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]  # by all ranks
    if trainer.is_world_process_zero():
        print(f"final loss {loss:.8f} at step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
