"""The training loop that loses nothing: it resumes where it stopped, saves as it goes, and stops when told to.

    with slurmddp.init() as ddp:
        ...
        run = slurmddp.Checkpointer(model=model, optimizer=optimizer, sampler=sampler)
        for step in run.steps(total):
            ...

All ranks call everything here, in the same order.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import nn

from slurmddp.errors import PeerError, RankError
from slurmddp.runs.ownership import ownership_of
from slurmddp.runs.training_events import Checkpoint, CheckpointFailed, Loop, Metrics, Resume
from slurmddp.runtime import session
from slurmddp.runtime.checkpoint import state
from slurmddp.runtime.checkpoint.async_writer import Writer
from slurmddp.runtime.checkpoint.ddp_buckets import layouts
from slurmddp.runtime.checkpoint.sampler import Sampler
from slurmddp.runtime.checkpoint.staging import Snapshot, check_plain
from slurmddp.runtime.checkpoint.state import Stateful
from slurmddp.runtime.checkpoint.store import INDEX, Found, Store, identity_of
from slurmddp.runtime.exiting.classify import Stopped, one_line
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.metrics import step_timer
from slurmddp.runtime.metrics.stragglers import Stragglers
from slurmddp.runtime.stopping.consensus import Agreement
from slurmddp.runtime.stopping.signals import NOTICES

if TYPE_CHECKING:
    from slurmddp.runtime.checkpoint.collective_save import Joint
    from slurmddp.runtime.checkpoint.sharded import Share

EVERY_S: Final = 600.0
"""Between two checkpoints, unless steps or seconds are given."""
KEEP: Final = 2
AWAIT_S: Final = 60.0
"""For a checkpoint that rank 0 sees to be seen by the other nodes."""
DIGEST_BYTES: Final = 32

MODEL, STATE, RANKS = "model.pt", "state.pt", "ranks.pt"


class Checkpointer:
    """The durable state of a training, and the loop that keeps it so."""

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

        `shared` are optimizer, scheduler, scaler, sampler and whatever else is the same on all ranks and has
        `state_dict` and `load_state_dict`; a `slurmddp.Sampler` named `sampler` is advanced by each step. A model under
        `fully_shard`, its optimizer and a ZeroRedundancyOptimizer are saved by all ranks, in pieces. `own` is what
        each rank has for itself. A checkpoint is taken every `every_steps` steps, or every `every_s` seconds
        (600 where neither is given), when told to stop, and after the last step; the newest `keep` stay. They lie
        under `folder`, by default the run's; a process started by hand without one saves nothing.

        Raises RankError when the checkpoint does not fit, is another run's, or a state is not plain data or cannot be
        had; PeerError when another node does not see the checkpoint that rank 0 sees.
        """
        _check_counts(every_steps, keep)
        self._session = session.current()
        self._model = model
        self._shared: dict[str, Stateful] = dict(shared)
        self._own: dict[str, Stateful] = dict(own or {})
        self._sampler = shared.get("sampler")
        self._cadence = _Cadence(every_steps, EVERY_S if every_steps is every_s is None else every_s)
        self._divided = {name: part for name, part in self._parts().items() if state.is_divided(part)}
        self._alike = {name: part for name, part in self._shared.items() if name not in self._divided}
        self._layouts = layouts(self._modules())
        self._stragglers = Stragglers(self._modules().values(), self._session.who)
        self._stopping = self._session.stopping
        self.step = 0
        """Steps finished, since the weights were new."""
        self.total = 0
        """Steps of the whole training; 0 before the loop."""
        self._pace: step_timer.Pace | None = None
        self._untold_total = 0
        self._random: state.State | None = None
        self._saved_step = -1
        self._in_step = self._asked = False
        self._finished_at = time.monotonic()
        self._longest_s = 0.0
        self._place = _folder(folder, self._session)
        if self._place:
            self._session.take(self._place)
        self._store = _store(self._place, keep, self._session) if self._place else None
        self._joint = _joint(self._place, self._divided, self._session) if self._place and self._divided else None
        self._writer = Writer() if self._joint or (self._store and self._session.is_main) else None
        self._snapshot = Snapshot()
        self._check_plain()
        self._restore()

    def steps(self, total: int | None = None, *, epochs: int | None = None) -> Iterator[int]:
        """Yield the number of each step that is still to do, from 0 to `total` - 1.

        `epochs` in place of `total` counts by the sampler. A step is finished when the loop asks for the next. When
        the job is told to stop, all ranks end after the same step: its state is made durable and `Stopped`, a
        SystemExit, leaves the program. After the last step its state is durable, too.
        """
        self.total = self._total(total, epochs)
        self._measure()
        agreement = Agreement(self._session.control, self._stragglers.measure)
        self._begin_loop()
        try:
            while self.step < self.total:
                self._watch_layouts()
                self._in_step = True
                yield self.step
                self._finish_step()
                self._poll(agreement)
            self._end_loop(agreement)
        except GeneratorExit:  # the program left the loop, by `break` or an exception; its step is not finished
            self._in_step = False
            self._stopping.expect_left_loop()
            raise

    def save(self) -> None:
        """Make the present state durable, all ranks together; inside the loop, that of this step when it is finished.

        Outside of it, it is durable when this returns.
        """
        if self._in_step:
            self._asked = True
            return
        self._begin_save()
        self._finish_save()
        self._barrier()

    def log(self, **values: float | None) -> None:
        """Write numbers into the run's events, by rank 0; the values of the other ranks are not looked at."""
        numbers = {name: None if value is None else float(value) for name, value in values.items()}
        write_event(self._session.who, Metrics(step=self.step, total=self.total, values=numbers))

    def _parts(self) -> dict[str, Stateful]:
        return {"model": self._model, **self._shared}

    def _modules(self) -> dict[str, nn.Module]:
        return {name: part for name, part in self._parts().items() if isinstance(part, nn.Module)}

    def _total(self, total: int | None, epochs: int | None) -> int:
        if total is not None:
            return total
        if epochs is None or not isinstance(self._sampler, Sampler):
            raise RankError("steps(): give total, or epochs and a slurmddp.Sampler as `sampler`")
        return self.step + self._sampler.steps_until(epochs)

    def _measure(self) -> None:
        """End after as many steps as were asked for, and measure them; a job that came back begins to measure anew."""
        self._pace = step_timer.from_environment(self._modules().values(), self._session.device)
        if self._pace:
            self._untold_total, self.total = self.total, min(self.total, self.step + self._pace.asked)

    def _begin_loop(self) -> None:
        if self._random is not None and self.total >= self.step:
            state.restore_random(self._random, self._session.device)
            self._random = None
        self._cadence.begin(self.step)
        write_event(self._session.who, Loop(step=self.step, total=self.total))
        self._unknown_layouts = list(self._layouts.values())
        self._finished_at = time.monotonic()
        self._stopping.expect_in_loop(lambda: (self._finished_at, self._longest_s))

    def _watch_layouts(self) -> None:
        for layout in self._unknown_layouts:
            layout.watch()

    def _finish_step(self) -> None:
        for layout in self._unknown_layouts:
            layout.settle()
        self._unknown_layouts = [layout for layout in self._unknown_layouts if not layout.order]
        self._in_step = False
        self.step += 1
        now = time.monotonic()
        self._longest_s = max(self._longest_s, now - self._finished_at)
        self._finished_at = now
        if isinstance(self._sampler, Sampler):
            self._sampler.advance()
        if self._pace:
            self._pace.count()

    def _poll(self, agreement: Agreement) -> None:
        if self._writer:
            self._check_writer(self._writer.check)
        wanted = self._is_idle_writer() and self._cadence.is_time(self._finished_at)
        agreed = agreement.poll(stop=NOTICES.given, save=wanted)
        self._stragglers.compare(agreed.step_us, agreed.backwards_us)
        if agreed.stop:
            self._stop()
        if (agreed.save or self._asked or self._cadence.is_step(self.step)) and self.step < self.total:
            self._asked = False
            self._begin_save()

    def _is_idle_writer(self) -> bool:
        """Tell whether rank 0, whose clock alone counts, may begin a checkpoint."""
        return self._session.is_main and self._writer is not None and self._writer.idle

    def _end_loop(self, agreement: Agreement) -> None:
        if agreement.conclude(stop=NOTICES.given):
            self._stop()
        self._tell_pace()
        self.save()
        self._stopping.expect_plain()

    def _tell_pace(self) -> None:
        if self._pace:
            samples = self._sampler.global_batch if isinstance(self._sampler, Sampler) else None
            world_size = self._session.world_size
            told = self._pace.event(step=self.step, total=self._untold_total, world_size=world_size, samples=samples)
            write_event(self._session.who, told)

    def _stop(self) -> None:
        self.save()
        self._stopping.expect_nothing()
        durable = f"told to stop at step {self.step} ({self._stopping.reason})"
        if self._store and self._session.is_main and self._saved_step != self.step:
            durable += f"; that step could not be saved, step {max(self._saved_step, 0)} could"
        raise Stopped(self.step, durable)

    def _begin_save(self) -> None:
        """Copy the state and hand the copy to the writer; a step that is durable already is left alone."""
        self._cadence.begin(self.step)
        if self._store is None:
            return
        began = time.monotonic()
        own = state.collect_own(self._modules(), self._own, self._session.device)
        ranks = state.gather(own, self._session.control)
        if self._writer is None:
            return
        self._check_writer(self._writer.finish)
        if self._joint is None and self._saved_step == self.step:
            return
        share = self._joint.share() if self._joint else None
        parts = {**self._collect(), RANKS: ranks} if self._session.is_main else {}
        parts, tensors = self._snapshot.take([parts, share.tensors if share else []])
        step, store, held_s = self.step, self._store, time.monotonic() - began
        self._writer.begin(lambda: self._write(store, step, parts, share and share.of(tensors), held_s))

    def _collect(self) -> dict[str, Any]:
        shared = {
            "step": self.step,
            "layouts": {name: layout.order for name, layout in self._layouts.items()},
            "parts": state.collect(self._alike),
        }
        model = {} if "model" in self._divided else {MODEL: state.state_of(self._model)}
        return {**model, STATE: shared}

    def _write(self, store: Store, step: int, parts: Mapping[str, Any], share: "Share | None", held_s: float) -> None:
        """Write one checkpoint, in the writer's thread; other ranks than 0 their part of one."""
        who, began = self._session.who, time.monotonic()
        for name, content in parts.items():  # a value may have become another kind during the training
            check_plain(content, name)
        note = {"job": who.job, "attempt": who.attempt, "world_size": who.world_size}
        if self._joint is None or share is None:
            store.write(step, parts, note)
        elif not who.is_main:
            self._joint.follow(share)
            return
        elif self._saved_step == step:
            self._joint.skip()
            return
        else:
            self._joint.lead(store, step, parts, share, note)
        self._saved_step = step
        event = Checkpoint(step=step, held_s=held_s, write_s=time.monotonic() - began)
        write_event(who, event)

    def _finish_save(self) -> None:
        if self._writer:
            self._check_writer(self._writer.finish)

    def _check_writer(self, ask: Any) -> None:
        """Go on without a checkpoint that the disk did not take; the one before stays."""
        try:
            ask()
        except OSError as error:
            reason = one_line(f"{error.strerror or error}: {error.filename or self._place}")
            self._session.print(f"WARNING: a checkpoint could not be saved: {reason}; the one before stays")
            write_event(self._session.who, CheckpointFailed(step=self.step, reason=reason))

    def _barrier(self) -> None:
        if self._session.control:
            dist.barrier(self._session.control)

    def _check_plain(self) -> None:
        divided = self._joint.share().frame if self._joint else {}
        for name, content in {**divided, **state.collect(self._alike), **state.collect(self._own)}.items():
            check_plain(content, name)

    def _restore(self) -> None:
        found = self._agree_on_newest() if self._store else None
        if self._store is None or found is None:
            return
        shared, ranks = (self._store.load(found, name) for name in (STATE, RANKS))
        state.restore(self._parts(), {**self._whole(self._store, found), **shared["parts"]})
        for name, layout in self._layouts.items():
            layout.restore(shared["layouts"].get(name, []))
        self.step = self._saved_step = shared["step"]
        self._restore_own(ranks)
        self._say_resumed(found, len(ranks))

    def _whole(self, store: Store, found: Found) -> state.State:
        """Return the model's state, and that of all parts that were divided when it was saved."""
        states = {"model": store.load(found, MODEL)} if MODEL in found.files else {}
        if INDEX in found.files:
            from slurmddp.runtime.checkpoint import sharded  # noqa: PLC0415 - its imports cost what most trainings do not need

            states |= sharded.load(found.folder, store.load(found, INDEX), self._parts())
        return states

    def _restore_own(self, ranks: list[state.State]) -> None:
        ours = self._session
        if len(ranks) != ours.world_size:
            ours.print(
                f"saved by {len(ranks)} ranks, going on with {ours.world_size}: each rank's own state starts anew"
            )
            return
        state.restore_own(self._modules(), self._own, ours.device, ranks[ours.rank])
        self._random = ranks[ours.rank]["random"]

    def _say_resumed(self, found: Found, world_size: int) -> None:
        self._session.print(f"resumed at step {self.step} from {found.folder.name}")
        event = Resume(step=self.step, checkpoint=found.folder.name, from_world_size=world_size)
        write_event(self._session.who, event)

    def _agree_on_newest(self) -> Found | None:
        """Return the checkpoint that rank 0 chose, when this rank sees it, too."""
        store, ours = self._store, self._session
        if store is None:
            return None
        found: Found | None = None
        error: Exception | None = None
        if ours.is_main:
            try:
                found = store.newest()
            except (RankError, OSError) as raised:
                error = raised
        if ours.control is None:
            if error:
                raise error
            return found
        choice = _broadcast(found, failed=error is not None, group=ours.control)
        if error:
            raise error
        if choice is None or ours.is_main:
            return found
        return store.await_found(*choice, AWAIT_S)


def _check_counts(every_steps: int | None, keep: int) -> None:
    if keep < 1 or (every_steps is not None and every_steps < 1):
        raise RankError(f"Checkpointer: every_steps {every_steps}, keep {keep}; both must be at least 1")


class _Cadence:
    """When the next checkpoint is due."""

    def __init__(self, every_steps: int | None, every_s: float | None) -> None:
        self._every_steps = every_steps
        self._every_s = every_s
        self._last_step = 0
        self._last_s = time.monotonic()

    def begin(self, step: int) -> None:
        """Count from here."""
        self._last_step, self._last_s = step, time.monotonic()

    def is_step(self, step: int) -> bool:
        """Tell by the steps, alike on all ranks."""
        return self._every_steps is not None and step % self._every_steps == 0

    def is_time(self, now: float) -> bool:
        """Tell by the clock, which only rank 0's counts."""
        return self._every_s is not None and now >= self._last_s + self._every_s


def _folder(given: str | Path | None, ours: session.Session) -> Path | None:
    if given is not None:
        return Path(given)
    if ours.run_dir is None:
        ours.print("no checkpoints: this process was started by hand, without a run folder")
        return None
    return ours.run_dir.checkpoints


def _joint(place: Path, parts: Mapping[str, Stateful], ours: session.Session) -> "Joint":
    """Return what lets all ranks write parts that are divided among them; its group is its own."""
    from slurmddp.runtime.checkpoint.collective_save import Joint  # noqa: PLC0415 - its imports cost what most trainings do not need

    group = dist.new_group(backend="gloo", timeout=session.PATIENCE) if ours.control else None
    return Joint(parts, place, ours.who, group)


def _store(place: Path, keep: int, ours: session.Session) -> Store:
    """Return the store of checkpoints; rank 0 makes its folder, and the others wait for it."""
    run_dir = ours.run_dir
    if ours.is_main:
        place.mkdir(parents=True, exist_ok=True)
        identity_of(place)
    if ours.control:
        dist.barrier(ours.control)
    owner = ownership_of(run_dir.owner, os.environ) if run_dir else None
    return Store(place, identity=identity_of(place), keep=keep, owner=owner, say=ours.print)


def _broadcast(found: Found | None, *, failed: bool, group: dist.ProcessGroup) -> tuple[int, str] | None:
    """Tell all ranks which checkpoint rank 0 chose, by step and digest; None for none.

    Raises PeerError on the other ranks when rank 0 has failed.
    """
    message = torch.zeros(1 + DIGEST_BYTES, dtype=torch.int64)
    message[0] = -2 if failed else -1 if found is None else found.step
    if found:
        message[1:] = torch.tensor(list(bytes.fromhex(found.digest)))
    dist.broadcast(message, 0, group)
    step, *digest = message.tolist()
    if step == -2 and dist.get_rank(group):  # noqa: PLR2004 - as above
        raise PeerError("rank 0 found no checkpoint that can be used, and says why")
    return (step, bytes(digest).hex()) if step >= 0 else None
