"""The training loop that resumes from the newest checkpoint, saves checkpoints, and stops saved when the job must stop.

    with slurmddp.init() as ddp:
        ...
        run = slurmddp.Checkpointer(model=model, optimizer=optimizer, sampler=sampler)
        for step in run.steps(total):
            ...

All ranks call everything here, in the same order.
"""

from __future__ import annotations
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import torch.distributed as dist
from torch import nn

from slurmddp.errors import RankError
from slurmddp.runs.training_events import Loop, Metrics
from slurmddp.runtime import session
from slurmddp.runtime.checkpoint.sampler import Sampler
from slurmddp.runtime.checkpoint.saver import Saver, restore_newest
from slurmddp.runtime.checkpoint.store import Store, ensure_identity
from slurmddp.runtime.checkpoint.survivors import Survivor
from slurmddp.runtime.checkpoint.training_state import Stateful, TrainingState
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.step_times import StepTimer, Stragglers, timer_from_environment
from slurmddp.runtime.stopping.consensus import LoopStop
from slurmddp.runtime.stopping.policy import Phase

EVERY_S: Final = 600.0
"""Seconds between two checkpoints when neither steps nor seconds are given."""
KEEP: Final = 2


class Checkpointer:
    """Resumes a training, saves its state while it runs, and stops it when the job must stop."""

    def __init__(
        self,
        *,
        model: nn.Module,
        every_steps: int | None = None,
        every_s: float | None = None,
        keep: int = KEEP,
        folder: str | Path | None = None,
        own: Mapping[str, Stateful] | None = None,
        **shared: Stateful,
    ) -> None:
        """Restore the newest checkpoint, if there is one.

        `shared` are optimizer, scheduler, scaler, sampler and all other parts that are the same on all ranks and have
        `state_dict` and `load_state_dict`; each step advances a `slurmddp.Sampler` that is named `sampler`. A model
        under `fully_shard`, its optimizer and a ZeroRedundancyOptimizer are saved in pieces, by all ranks. `own` are
        the parts that differ from rank to rank. A checkpoint is saved every `every_steps` steps or every `every_s`
        seconds (600 when neither is given), when the job must stop, and after the last step. The newest `keep`
        checkpoints stay. They are stored in `folder`, by default the run's; a process without a run folder saves
        nothing unless `folder` is given.

        Raises RankError when the checkpoint does not fit, belongs to another run, or a state cannot be saved;
        PeerError when another node does not see the checkpoint that rank 0 sees.
        """
        if keep < 1 or (every_steps is not None and every_steps < 1):
            raise RankError(f"Checkpointer: every_steps {every_steps}, keep {keep}; both must be at least 1")
        self._session = session.current()
        sampler = shared.get("sampler")
        self._sampler = sampler if isinstance(sampler, Sampler) else None
        if self._sampler:
            self._sampler.check_unused()
        self._training = TrainingState(model=model, shared=shared, own=own or {}, device=self._session.device)
        self._every_steps, self._every_s = every_steps, EVERY_S if every_steps is every_s is None else every_s
        self._loop = LoopStop(self._session.stopping)
        self._stragglers = Stragglers(self._training.wrappers, self._session)
        self._step_timer: StepTimer | None = None
        self.step = 0
        """Steps finished, since the weights were new."""
        self.total = 0
        """Steps of the whole training; 0 before the loop."""
        self._in_step = self._save_asked = False
        store = _open_store(folder, keep, self._session)
        self._saver = Saver(self._training, self._session, store)
        self._survivor = Survivor(self._training, self._session, store)
        restored = restore_newest(self._training, store, self._session) if store else None
        self._saver.last_saved, self.step = restored, restored or 0

    def steps(self, total: int | None = None, *, epochs: int | None = None) -> Iterator[int]:
        """Yield the number of each step that is still to do, from 0 to `total` - 1.

        `epochs` in place of `total` counts by the sampler. A step is finished when the loop asks for the next. When
        the job must stop, all ranks stop after the same step: they save its state, and then raise `Stopped`, a
        SystemExit, which ends the program. The state after the last step is saved, too.
        """
        if total is None:
            if epochs is None or self._sampler is None:
                raise RankError("steps(): give total, or epochs and a slurmddp.Sampler as `sampler`")
            total = self.step + self._sampler.steps_until(epochs)
        self._step_timer = timer_from_environment(self._training.wrappers, self._session.device)
        self.total = min(total, self.step + self._step_timer.asked) if self._step_timer else total
        self._begin_loop()
        try:
            while self.step < self.total:
                for layout in self._training.layouts.values():
                    layout.watch()
                self._in_step = True
                yield self.step
                self._finish_step()
            if self._loop.conclude():
                self._stop()
            if self._step_timer:
                samples = self._sampler.global_batch if self._sampler else None
                timing = self._step_timer.event(
                    step=self.step, total=total, world_size=self._session.world_size, samples=samples
                )
                write_event(self._session, timing)
            self.save()
            self._survivor.end()
            self._loop.end(describe_saved=partial(self._saver.describe_saved, self.step))
        except GeneratorExit:  # the program left the loop, by `break` or an exception; its step is not finished
            self._in_step = False
            self._survivor.leave_loop()
            self._loop.end(Phase.LEFT_LOOP)
            if self._session.stopping.signals.stop_requested:
                with suppress(Exception):  # a checkpoint that is being written: the process ends soon
                    self._saver.finish(self.step)
            raise

    def save(self) -> None:
        """Save the present state, all ranks together; inside the loop, save that of this step when it is finished.

        Outside the loop, the checkpoint is on disk when this returns.
        """
        if self._in_step:
            self._save_asked = True
            return
        self._saver.begin(self.step)
        self._saver.finish(self.step)
        if self._session.control:
            dist.barrier(self._session.control)

    def log(self, **values: float | None) -> None:
        """Write numbers into the run's events, by rank 0; the values of the other ranks are ignored."""
        numbers = {name: None if value is None else float(value) for name, value in values.items()}
        write_event(self._session, Metrics(step=self.step, total=self.total, values=numbers))

    def _begin_loop(self) -> None:
        if self.total >= self.step:
            self._training.restore_random()
        self._saver.begun_at = time.monotonic()
        write_event(self._session, Loop(step=self.step, total=self.total))
        self._survivor.begin(self.step)
        hooks: dict[str, Any] = {"describe_saved": self._saver.describe_saved, "rescue": self._survivor.save}
        self._loop.begin(self.step, group=self._session.control, measure=self._stragglers.measure, **hooks)

    def _finish_step(self) -> None:
        """Count a step, and do after it what all ranks agreed on: stop, begin a checkpoint, or nothing."""
        for layout in self._training.layouts.values():
            layout.settle()
        self._in_step = False
        self.step += 1
        if self._sampler:
            self._sampler.consumed += self._sampler.global_batch
        if self._step_timer:
            self._step_timer.count()
        self._survivor.keep(self.step)  # before the ranks agree: there, too, a peer may be gone
        decides = self._saver.check(self.step)  # only rank 0's clock counts
        late = self._every_s is not None and time.monotonic() >= self._saver.begun_at + self._every_s
        agreed = self._loop.poll(self.step, save=decides and late)
        self._stragglers.compare(agreed.step_us, agreed.backwards_us)
        if agreed.stop:
            self._stop()
        is_due = agreed.save or (self._every_steps is not None and self.step % self._every_steps == 0)
        if (is_due or self._save_asked) and self.step < self.total:
            self._save_asked = False
            self._saver.begin(self.step)

    def _stop(self) -> NoReturn:
        self.save()
        self._survivor.end()
        self._loop.leave(self._saver.describe_saved(self.step))


def _open_store(given: str | Path | None, keep: int, ours: session.Session) -> Store | None:
    """Return the store of checkpoints; rank 0 makes its folder, and the others wait for it."""
    folder = Path(given) if given is not None else ours.run_dir and ours.run_dir.checkpoints
    if folder is None:
        ours.print("no checkpoints: this process has no run folder; give folder= to save them")
        return None
    if folder.resolve() in ours.folders:
        raise RankError(f"a Checkpointer of this program keeps its checkpoints in {folder}; give this one a folder=")
    ours.folders.add(folder.resolve())
    if ours.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        ensure_identity(folder)
    if ours.control:
        dist.barrier(ours.control)
    return Store(folder, identity=ensure_identity(folder), keep=keep, check_owner=ours.check_owner, say=ours.print)
