"""Lightning gets a callback in the ranks of a run alone; what that does is shown by tests/frameworks."""

import subprocess
import sys
from importlib.metadata import entry_points

from slurmddp.runtime import lightning


def test_a_process_that_is_no_rank_of_a_run_gets_none():
    assert lightning.for_lightning() == lightning.for_pytorch_lightning() == []


def test_lightning_finds_it():
    for group, factory in [
        ("lightning.pytorch.callbacks_factory", lightning.for_lightning),
        ("pytorch_lightning.callbacks_factory", lightning.for_pytorch_lightning),
    ]:
        (point,) = entry_points(group=group, name="slurmddp")
        assert point.load() is factory


STOPS = """
import sys, warnings
from pathlib import Path
from types import SimpleNamespace
import lightning.pytorch as lightning
import torch
from slurmddp.runtime.lightning import _SaveAtStop
from slurmddp.runtime.stopping.consensus import Decision

class Stop:
    stopping = SimpleNamespace(rescue=lambda: None)
    def __init__(self, at): self.at = at
    def poll(self, step): return Decision(stop=step == self.at, save=False)
    def check_owner(self): pass
    def leave(self): raise KeyboardInterrupt
    def end(self, *_): pass

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch): return self.layer(batch).sum()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

class Batches:
    taken = 0
    def __len__(self): return 4
    def __iter__(self):
        while True:
            self.taken += 1
            yield torch.ones(1)
            if self.taken % 4 == 0: return
    def state_dict(self): return {"taken": self.taken}
    def load_state_dict(self, state): self.taken = state["taken"]

def train(file, at):
    others = dict.fromkeys(("setup", "on_train_start", "on_train_end"), lambda *_, **__: None)
    stop = type("SaveAtStop", (_SaveAtStop, lightning.Callback), others)(None, file, None)
    stop._stop = Stop(at)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, callbacks=[stop], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=file.parent,
    )
    try:
        trainer.fit(Model(), Batches(), ckpt_path=file if file.exists() else None)
    except (KeyboardInterrupt, SystemExit):
        pass
    return trainer.global_step

for stops in ([6], [4, 6], [4, 8, 9]):
    file = Path(sys.argv[1], "-".join(map(str, stops)))
    print(*(train(file, at) for at in [*stops, 0]))
"""


def test_a_training_that_stops_at_the_last_batch_of_an_epoch_takes_as_many_steps(tmp_path):
    """Lightning takes the epoch again at the resume after the next."""
    command = [sys.executable, "-c", STOPS, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.splitlines() == ["6 12", "4 6 12", "4 8 9 12"], done.stdout + done.stderr
