"""Saves and stops a PyTorch Lightning training at a stop request; an unmodified script then resumes from there.

A Trainer loads this by the entry point `lightning.pytorch.callbacks_factory`; nothing else imports it. Lightning's own
answer to SIGTERM is not enough: each rank leaves after a different batch, saves nothing, and ends with status 0.
"""

import importlib
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import torch.distributed as dist

from slurmddp.runs.ownership import ownership_of
from slurmddp.runtime.exiting.classify import Stopped
from slurmddp.runtime.launch.trackers import record_mlflow_run
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.session import CONTROL_LIMIT
from slurmddp.runtime.stopping.consensus import Consensus
from slurmddp.runtime.stopping.signals import SIGNALS
from slurmddp.runtime.stopping.stop_policy import Phase, Progress, Stopping

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
    in the same order. Only if the file exists does the callback offer it: Lightning then resumes from the newest of it
    and the script's own checkpoints.
    """
    process = this_process()
    if not process.has_begun or process.stopping.rank.run_dir is None:
        return []
    callbacks = importlib.import_module(module)
    file = process.stopping.rank.run_dir.checkpoints / f"lightning-{next(_trainers)}.ckpt"
    base = callbacks.OnExceptionCheckpoint if file.exists() else callbacks.Callback
    return [type("SaveAtStop", (_SaveAtStop, base), {})(process.stopping, file)]


class _SaveAtStop:
    """Does by Lightning's hooks what `Checkpointer.steps` does at a stop request."""

    def __init__(self, stopping: Stopping, file: Path) -> None:
        self._stopping = stopping
        self._file = file
        self._consensus: Consensus | None = None
        self._has_signals = False
        self._step = 0
        self._progress = Progress()

    @property
    def ckpt_path(self) -> str:
        """Where Lightning looks when it resumes."""
        return str(self._file)

    def setup(self, *_: Any, **__: Any) -> None:
        """Note whether the signal handlers are ours, before Lightning installs its own for SIGTERM."""
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self._has_signals = self._stopping.signals.all_handlers_ours

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Install our handler for SIGTERM again, and begin to agree with all ranks on a step to stop at."""
        record_mlflow_run(self._stopping.rank)
        if not self._has_signals:
            return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        together = trainer.world_size > 1
        self._consensus = Consensus(dist.new_group(backend="gloo", timeout=CONTROL_LIMIT) if together else None)
        self._step = trainer.global_step
        self._progress.begin()
        self._stopping.progress = self._progress
        self._stopping.enter(Phase.LOOP)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Stop after the step that all ranks agreed on; a batch that only accumulates gradients is no step."""
        if self._consensus is None or trainer.global_step == self._step:
            return
        self._progress.finish_step()
        self._step = trainer.global_step
        if self._consensus.poll(stop=self._stopping.signals.stop_requested, save=False).stop:
            self._stop(trainer)

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """Remove the checkpoint of a stop: the training is complete, unless it is to stop now."""
        if self._consensus and self._consensus.conclude(stop=self._stopping.signals.stop_requested):
            self._stop(trainer)
        trainer.strategy.remove_checkpoint(self._file)
        if self._consensus:
            self._consensus = None
            self._stopping.enter(Phase.SCRIPT)

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Leave the loop by an exception of the program."""
        del trainer, module
        if self._consensus and not isinstance(exception, Stopped):
            self._stopping.enter(Phase.LEFT_LOOP)

    def teardown(self, *_: Any, **__: Any) -> None:
        """Keep the file: Lightning calls this after an evaluation too, where its own callback would remove the file."""

    def _stop(self, trainer: Any) -> None:
        rank = self._stopping.rank
        owner = ownership_of(rank.run_dir.owner, os.environ) if rank.run_dir and rank.is_main else None
        if owner:
            owner.check()
        trainer.save_checkpoint(self._file, weights_only=False)
        self._stopping.enter(Phase.EXIT)
        raise Stopped(
            self._step, f"told to stop at step {self._step} ({self._stopping.reason}); saved step {self._step}"
        )
