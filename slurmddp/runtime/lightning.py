"""Stops a PyTorch Lightning training that is told to, saved, so that an unmodified script goes on where it was.

A Trainer asks for this by the entry point `lightning.pytorch.callbacks_factory`; nothing else imports it. Lightning's
own answer to SIGTERM does not do: each rank leaves after a batch of its own, saves nothing, and ends with status 0.
"""

import importlib
import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from slurmddp.runs.ownership import ownership_of
from slurmddp.runtime.exiting.classify import Stopped
from slurmddp.runtime.session import PATIENCE
from slurmddp.runtime.stopping.consensus import Agreement
from slurmddp.runtime.stopping.signals import NOTICES, SIGNALS
from slurmddp.runtime.stopping.stop_policy import Stopping, begun

_trainers = itertools.count(1)


def for_lightning() -> list[Any]:
    """Return the callbacks that a `lightning.pytorch.Trainer` gets."""
    return _callbacks("lightning.pytorch.callbacks")


def for_pytorch_lightning() -> list[Any]:
    """Return the callbacks that a `pytorch_lightning.Trainer` gets."""
    return _callbacks("pytorch_lightning.callbacks")


def _callbacks(module: str) -> list[Any]:
    """Return one in a rank that has a run's folder, and none in any other process.

    The file has the number of the Trainer among those of the script: the next start makes them in the same order. Only
    where it exists does the callback say so: Lightning then takes up the newest of it and the script's own.
    """
    stopping = begun()
    if stopping is None or stopping.rank.run_dir is None:
        return []
    callbacks = importlib.import_module(module)
    file = stopping.rank.run_dir.checkpoints / f"lightning-{next(_trainers)}.ckpt"
    base = callbacks.OnExceptionCheckpoint if file.exists() else callbacks.Callback
    return [type("SaveAtNotice", (_SaveAtNotice, base), {})(stopping, file)]


class _SaveAtNotice:
    """What `Checkpointer.steps` does at a notice, by Lightning's hooks."""

    def __init__(self, stopping: Stopping, file: Path) -> None:
        self._stopping = stopping
        self._file = file
        self._agreement: Agreement | None = None
        self._listens = False
        self._step = 0
        self._finished_at = time.monotonic()
        self._longest_s = 0.0

    @property
    def ckpt_path(self) -> str:
        """Where Lightning looks when it resumes."""
        return str(self._file)

    def setup(self, *_: Any, **__: Any) -> None:
        """Look whether notices are ours, before Lightning takes SIGTERM for itself."""
        self._handlers = {number: signal.getsignal(number) for number in SIGNALS}
        self._listens = NOTICES.alone

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Take SIGTERM back, and begin to agree on a step to stop at."""
        if not self._listens:
            return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        together = trainer.world_size > 1
        self._agreement = Agreement(dist.new_group(backend="gloo", timeout=PATIENCE) if together else None)
        self._step, self._finished_at = trainer.global_step, time.monotonic()
        self._stopping.expect_in_loop(lambda: (self._finished_at, self._longest_s))

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Stop after the step that all ranks agreed on; gradients that only add up so far are no step."""
        if self._agreement is None or trainer.global_step == self._step:
            return
        now = time.monotonic()
        self._longest_s = max(self._longest_s, now - self._finished_at)
        self._step, self._finished_at = trainer.global_step, now
        if self._agreement.poll(stop=NOTICES.given, save=False).stop:
            self._stop(trainer)

    def on_train_end(self, trainer: Any, *_: Any) -> None:
        """Remove what was saved at a notice: the training is complete, unless it is to stop now."""
        if self._agreement and self._agreement.conclude(stop=NOTICES.given):
            self._stop(trainer)
        trainer.strategy.remove_checkpoint(self._file)
        if self._agreement:
            self._agreement = None
            self._stopping.expect_plain()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Leave the loop by an exception of the program."""
        del trainer, module
        if self._agreement and not isinstance(exception, Stopped):
            self._stopping.expect_left_loop()

    def teardown(self, *_: Any, **__: Any) -> None:
        """Keep what was saved: also an evaluation ends with this."""

    def _stop(self, trainer: Any) -> None:
        rank = self._stopping.rank
        owner = ownership_of(rank.run_dir.owner, os.environ) if rank.run_dir and rank.is_main else None
        if owner:
            owner.check()
        trainer.save_checkpoint(self._file, weights_only=False)
        self._stopping.expect_nothing()
        raise Stopped(self._step, f"told to stop at step {self._step} ({self._stopping.reason})")
