"""Trains by Hugging Face's Trainer: hf_trainer.py EPOCHS FOLDER SECONDS_A_STEP [TRAINING_ARGUMENT=JSON...]."""

import hashlib
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments


class Regression(PreTrainedModel):
    def __init__(self, step_s):
        super().__init__(PreTrainedConfig())
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1))
        self.step_s = step_s
        self.post_init()

    def forward(self, inputs, labels):
        time.sleep((self.step_s + Path("slow").exists()) * self.training)
        outputs = self.layers(inputs)
        return {"loss": nn.functional.mse_loss(outputs, labels), "outputs": outputs}


class Print(TrainerCallback):
    def on_train_begin(self, args, state, *_, **__):
        place = f"rank {args.process_index} of {args.world_size}, local {args.local_process_index}, {args.device.type}"
        print(f"{place}\nstarted at step {state.global_step}", flush=True)

    def on_epoch_end(self, _, state, *__, **___):
        if state.is_world_process_zero:
            print(f"epoch {round(state.epoch)} done", flush=True)


def main(epochs, folder, step_s, *options):
    args = TrainingArguments(
        folder,
        use_cpu=True,
        num_train_epochs=int(epochs),
        per_device_train_batch_size=4,
        learning_rate=0.01,
        report_to=[],
        disable_tqdm=True,
        **{name: json.loads(value) for name, value in (option.split("=") for option in options)},
    )
    data = [{"inputs": row, "labels": row[:1] * 2} for row in torch.randn(64, 8, generator=torch.Generator())]
    torch.manual_seed(0)
    trainer = Trainer(Regression(float(step_s)), args, train_dataset=data, eval_dataset=data[:8], callbacks=[Print()])
    trainer.train()
    weights = b"".join(value.numpy().tobytes() for value in trainer.model.state_dict().values())
    digest = hashlib.sha256(weights).hexdigest()
    if trainer.is_world_process_zero():  # each rank has its own statistics of the batches
        print(f"final weights {digest} at step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
