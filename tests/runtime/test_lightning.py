"""Lightning gets a callback in the ranks of a run alone; what that does is shown by tests/frameworks."""

import subprocess
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace

import pytest
import torch

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
    def fail(self, _): pass

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


@pytest.fixture
def survivor(tmp_path):
    """A callback after a step of a stand-in for a Trainer, and the Trainer."""
    connector = SimpleNamespace(
        dump_checkpoint=lambda **_: {"state_dict": {"weight": 1, "mean": 2}, "loops": "of the next batch"},
        _get_loops_state_dict=lambda: "of the step's end",
    )
    trainer = SimpleNamespace(
        strategy=SimpleNamespace(checkpoint_io=SimpleNamespace(save_checkpoint=torch.save)),
        global_step=3,
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(total_batch_idx=2)),
        _checkpoint_connector=connector,
    )
    rank = SimpleNamespace(rank=1, job="17", attempt="0.0", run_dir=None, is_main=False)
    callback = lightning._SaveAtStop(SimpleNamespace(rank=rank), tmp_path / "lightning-1.ckpt", None)
    callback._last = Kept()
    return callback, trainer


class Kept:
    """Stands for the last step, which rank 0 has ended with another mean."""

    def finish(self, step):
        self.step = step

    def save(self, new, final, write):
        assert new.name == "lightning-1.17.0.0.3"
        write(final, [], {"mean": 5})


def test_a_survivor_saves_the_buffers_and_the_loops_of_the_steps_end(survivor):
    callback, trainer = survivor
    callback._keep(trainer)
    callback._rescue(trainer)
    saved = torch.load(callback._file, weights_only=True)
    assert saved == {"state_dict": {"weight": 1, "mean": 5}, "loops": "of the step's end"}


def test_a_batch_that_was_no_step_is_not_saved(survivor):
    callback, trainer = survivor
    trainer.fit_loop.epoch_loop.total_batch_idx = 3
    callback._keep(trainer)
    callback._rescue(trainer)
    assert not callback._file.exists()
