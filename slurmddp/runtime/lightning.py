"""Saves and stops a PyTorch Lightning training at a stop request; an unmodified script then resumes from there.

A Trainer loads this by the entry point `lightning.pytorch.callbacks_factory`; nothing else imports it. Lightning's own
answer to SIGTERM is not enough: each rank leaves after a different batch, saves nothing, and ends with status 0.
"""

import importlib
import itertools
import shutil
import signal
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from slurmddp.runs.files import append_record, read_records
from slurmddp.runtime.checkpoint.last_step import LastStep
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.stopping.consensus import LoopStop
from slurmddp.runtime.stopping.signals import SIGNALS
from slurmddp.runtime.stopping.stopping import Stopping

_trainers = itertools.count(1)


def _callbacks(module: str) -> list[Any]:
    """Return the callback in a rank that has a run's folder, and nothing in any other process.

    The name of its checkpoint file holds the number of the Trainer within the script: each start creates the Trainers
    in the same order. Only if there is a checkpoint of the run does the callback offer it: Lightning then resumes from
    the newest of it and those in the script's own folder, which is a new one at each start by default. The folders of
    all attempts, and what lay in each before the first wrote there, are in a record beside the file.
    """
    process = this_process()
    if not process.has_begun or process.stopping.rank.run_dir is None:
        return []
    callbacks = importlib.import_module(module)
    file = process.stopping.rank.run_dir.checkpoints / f"lightning-{next(_trainers)}.ckpt"
    saved = _list(file.parent, file.name)
    noted = [*read_records(file.with_suffix(".jsonl"))]
    for folder, before in {each["folder"]: each["found"] for each in reversed(noted)}.items():
        saved |= {path: saved_at for path, saved_at in _list(Path(folder)).items() if before.get(path) != saved_at}
    offered = max(saved, key=saved.__getitem__, default=None)
    base = callbacks.OnExceptionCheckpoint if offered else callbacks.Callback
    return [type("SaveAtStop", (_SaveAtStop, base), {})(process.stopping, file, offered)]


for_lightning: Final = partial(_callbacks, "lightning.pytorch.callbacks")
for_pytorch_lightning: Final = partial(_callbacks, "pytorch_lightning.callbacks")
"""Return the callbacks that a Trainer of either package gets."""


def _list(folder: Path, pattern: str = "*.ckpt") -> dict[str, int]:
    """Return the whole checkpoints in a folder by path, with the times in nanoseconds at which they were saved."""
    return {str(path): path.stat().st_mtime_ns for path in folder.glob(pattern) if zipfile.is_zipfile(path)}


class _SaveAtStop:
    """Does by Lightning's hooks what `Checkpointer.steps` does at a stop request."""

    def __init__(self, stopping: Stopping, file: Path, offered: "str | None") -> None:
        self._stop = LoopStop(stopping)
        self._file = file
        self._offered = offered
        self._loops: Any = None
        """Where the training stood after the last finished step, as a checkpoint has it; None if this is not known."""
        self._last: LastStep | None = None

    @property
    def ckpt_path(self) -> "str | None":
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
                    folder = Path(callback.dirpath).resolve()  # noted before this attempt writes there
                    append_record(self._file.with_suffix(".jsonl"), {"folder": str(folder), "found": _list(folder)})
        if self._has_signals:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._stop.begin(trainer.global_step, world_size=trainer.world_size, rescue=partial(self._rescue, trainer))
            is_ddp = type(trainer.strategy).__name__ == "DDPStrategy" and trainer.strategy.root_device.type == "cpu"
            if is_ddp and self._stop.group:
                self._last = LastStep(self._stop, trainer.lightning_module)

    def on_before_optimizer_step(self, trainer: Any, *_: Any) -> None:
        """Give all ranks the buffers that the step ends with."""
        if self._last:
            self._last.share(trainer.global_step + 1)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Stop after the step that all ranks agreed on; a batch that only accumulates gradients is no step."""
        # Count the present epoch as begun, as it is in a training that was never resumed. Lightning 2.6 does not
        # after a resume at the last batch of an epoch: the next resume would begin this epoch again.
        progress = trainer.fit_loop.epoch_progress
        for counts in (progress.current, progress.total):
            counts.ready = counts.started = counts.processed + 1
        self._keep(trainer)
        if self._stop.poll(trainer.global_step).stop:
            self._save_and_leave(trainer)

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """Forget the checkpoints of this training: it is complete, unless it is to stop now."""
        if self._stop.conclude():
            self._save_and_leave(trainer)
        trainer.strategy.remove_checkpoint(self._file)
        if self._stop.stopping.rank.is_main:
            for left in self._file.parent.glob(f"{self._file.stem}.*"):  # the record, and what a survivor died over
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        self._stop.end()

    def on_exception(self, _: Any, __: Any, exception: BaseException) -> None:
        """Leave the loop by an exception of the program."""
        self._stop.fail(exception)

    def teardown(self, *_: Any, **__: Any) -> None:
        """Keep the file: Lightning calls this after an evaluation too, where its own callback would remove the file."""

    def _keep(self, trainer: Any) -> None:
        """Keep what the next step changes before its optimizer begins."""
        self._loops = None
        if self._last and trainer.global_step == trainer.fit_loop.epoch_loop.total_batch_idx + 1:
            self._last.finish(trainer.global_step)
            self._loops = trainer._checkpoint_connector._get_loops_state_dict()  # noqa: SLF001 - no public name

    def _rescue(self, trainer: Any) -> None:
        """Save the last finished step, as the first rank that survives a fault, if this rank still holds it."""
        rank, loops = self._stop.stopping.rank, self._loops

        def write(path: Path, _: object, buffers: dict[str, Any]) -> None:
            checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001 - as above
            changed = {"state_dict": {**checkpoint["state_dict"], **buffers}, "loops": loops}
            trainer.strategy.checkpoint_io.save_checkpoint({**checkpoint, **changed}, path)

        if self._last and loops is not None:
            new = self._file.with_suffix(f".{rank.job}.{rank.attempt}.{trainer.global_step}")
            self._last.save(new, self._file, write)

    def _save_and_leave(self, trainer: Any) -> None:
        self._stop.check_owner()
        trainer.save_checkpoint(self._file, weights_only=False)
        self._stop.leave()
