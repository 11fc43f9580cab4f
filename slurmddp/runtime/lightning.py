"""Saves and stops a PyTorch Lightning training at a stop request; an unmodified script then resumes from there.

A Trainer loads this by the entry point `lightning.pytorch.callbacks_factory`; nothing else imports it. Lightning's own
answer to SIGTERM is not enough: each rank leaves after a different batch, saves nothing, and ends with status 0.
"""

from __future__ import annotations
import importlib
import itertools
import signal
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from slurmddp.runs.files import append_record, read_records
from slurmddp.runtime.exiting.classify import Stopped
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.stopping.consensus import LoopStop
from slurmddp.runtime.stopping.policy import Phase
from slurmddp.runtime.stopping.signals import SIGNALS
from slurmddp.runtime.stopping.stopping import Stopping

_trainers = itertools.count(1)


def for_lightning() -> list[Any]:
    """Return the callbacks that a `lightning.pytorch.Trainer` gets."""
    return _callbacks("lightning.pytorch.callbacks")


def for_pytorch_lightning() -> list[Any]:
    """Return the callbacks that a `pytorch_lightning.Trainer` gets."""
    return _callbacks("pytorch_lightning.callbacks")


def _callbacks(module: str) -> list[Any]:
    """Return the callback in a rank that has a run's folder, and nothing in any other process.

    The name of its checkpoint file holds the number of the Trainer within the script: each start creates the Trainers
    in the same order. Only if there is a checkpoint of the run does the callback offer it: Lightning then resumes from
    the newest of it and those in the script's own folder, which is a new one at each start by default.
    """
    process = this_process()
    if not process.has_begun or process.stopping.rank.run_dir is None:
        return []
    callbacks = importlib.import_module(module)
    file = process.stopping.rank.run_dir.checkpoints / f"lightning-{next(_trainers)}.ckpt"
    folders = _Folders(file.with_suffix(".jsonl"))
    offered = max(filter(None, (_saved(file), folders.newest())), default=None)
    base = callbacks.OnExceptionCheckpoint if offered else callbacks.Callback
    return [type("SaveAtStop", (_SaveAtStop, base), {})(process.stopping, file, folders, offered and offered.path)]


class _Saved(NamedTuple):
    """A checkpoint that is there."""

    saved_at_ns: int
    path: str


def _saved(path: Path) -> _Saved | None:
    """Return the whole checkpoint in a file; None without one."""
    return _Saved(path.stat().st_mtime_ns, str(path)) if path.is_file() and zipfile.is_zipfile(path) else None


class _Folders(NamedTuple):
    """The folders of the script's own checkpoints in all attempts of the run; only rank 0 writes the file."""

    file: Path

    def newest(self) -> _Saved | None:
        """Return the newest whole checkpoint that the run has written into them."""
        before = {record["folder"]: record["found"] for record in [*read_records(self.file)][::-1]}
        saved = (_saved(path) for folder in before for path in Path(folder).glob("*.ckpt"))
        written = (one for one in saved if one and before[str(Path(one.path).parent)].get(one.path) != one.saved_at_ns)
        return max(written, default=None)

    def add(self, folder: str) -> None:
        """Note a folder, with what lies in it before the attempt writes there."""
        found = filter(None, map(_saved, Path(folder).glob("*.ckpt")))
        append_record(self.file, {"folder": folder, "found": {one.path: one.saved_at_ns for one in found}})


class _SaveAtStop:
    """Does by Lightning's hooks what `Checkpointer.steps` does at a stop request."""

    def __init__(self, stopping: Stopping, file: Path, folders: _Folders, offered: str | None) -> None:
        self._stop = LoopStop(stopping)
        self._file = file
        self._folders = folders
        self._offered = offered
        self._has_signals = False

    @property
    def ckpt_path(self) -> str | None:
        """Where Lightning looks when it resumes."""
        return self._offered

    def setup(self, *_: Any, **__: Any) -> None:
        """Note whether the signal handlers are ours, before Lightning installs its own for SIGTERM."""
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self._has_signals = self._stop.stopping.signals.all_handlers_ours

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Install our handler for SIGTERM again, and begin to agree with all ranks on a step to stop at."""
        if self._stop.stopping.rank.is_main:
            for callback in trainer.checkpoint_callbacks:
                if getattr(callback, "dirpath", None) and not getattr(callback, "save_weights_only", False):
                    self._folders.add(str(Path(callback.dirpath).resolve()))
        if self._has_signals:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._stop.begin(trainer.global_step, world_size=trainer.world_size)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Stop after the step that all ranks agreed on; a batch that only accumulates gradients is no step."""
        if self._stop.poll(trainer.global_step).stop:
            # Count the present epoch as begun, as it is in a training that was never resumed. Lightning 2.6 does not
            # after a resume at the last batch of an epoch: the next resume would begin this epoch again.
            progress = trainer.fit_loop.epoch_progress
            for counts in (progress.current, progress.total):
                counts.ready = counts.started = counts.processed + 1
            self._save_and_leave(trainer)

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """Forget the checkpoints of this training: it is complete, unless it is to stop now."""
        if self._stop.conclude():
            self._save_and_leave(trainer)
        trainer.strategy.remove_checkpoint(self._file)
        if self._stop.stopping.rank.is_main:
            self._folders.file.unlink(missing_ok=True)
        self._stop.end()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Leave the loop by an exception of the program."""
        del trainer, module
        if not isinstance(exception, Stopped):
            self._stop.end(Phase.LEFT_LOOP)

    def teardown(self, *_: Any, **__: Any) -> None:
        """Keep the file: Lightning calls this after an evaluation too, where its own callback would remove the file."""

    def _save_and_leave(self, trainer: Any) -> None:
        self._stop.check_owner()
        trainer.save_checkpoint(self._file, weights_only=False)
        self._stop.leave()
