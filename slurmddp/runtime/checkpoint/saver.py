"""Saves checkpoints in the background, and restores the newest.

All ranks call `begin` after the same step. It copies the state into host memory; a thread writes the copy to disk.
"""

from __future__ import annotations
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from slurmddp.background import run_in_background
from slurmddp.errors import PeerError
from slurmddp.runs.training_events import Checkpoint, CheckpointFailed, Resume
from slurmddp.runtime.checkpoint.staging import Snapshot, State, broadcast, check_plain, gather
from slurmddp.runtime.checkpoint.store import INDEX, Saved, Store
from slurmddp.runtime.checkpoint.survivors import adopt
from slurmddp.runtime.checkpoint.training_state import MODEL, RANKS, STATE, TrainingState
from slurmddp.runtime.exiting.classify import one_line
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.rendezvous.process_group import form_control_group
from slurmddp.runtime.session import Session

if TYPE_CHECKING:
    from slurmddp.runtime.checkpoint.sharded import CollectiveSave

VISIBLE_LIMIT_S = 60.0
"""Time for a checkpoint that rank 0 sees to become visible on the other nodes."""
_FAILED = "failed"
"""Sent in place of a checkpoint when rank 0 cannot use one."""


class Saver:
    """Saves a state: each rank sends what only it has to rank 0, which writes that and what all ranks share.

    Of parts that are divided among the ranks, each rank writes its own pieces.
    """

    def __init__(self, training: TrainingState, session: Session, store: Store | None) -> None:
        """`store` is None when the process has no folder for checkpoints: then nothing is saved."""
        self.last_saved: int | None = None
        """The step of the newest checkpoint; rank 0 knows it."""
        self.begun_at = time.monotonic()
        """When the last save began, or the loop."""
        self._training = training
        self._session = session
        self._store = store
        self._snapshot = Snapshot()
        self._writing: Future[None] | None = None
        self._note = {"job": session.job, "attempt": session.attempt, "world_size": session.world_size}
        self._collective: CollectiveSave | None = None
        if store and training.divided:
            from slurmddp.runtime.checkpoint.sharded import CollectiveSave  # noqa: PLC0415 - slow, rarely needed

            group = form_control_group(session.world_size)
            self._collective = CollectiveSave(training.divided, store, session, group)
            check_plain(self._collective.collect_share().frame)

    def begin(self, step: int) -> None:
        """Copy the state and start to write the copy, all ranks together; wait for the write before."""
        began = self.begun_at = time.monotonic()
        if self._store is None:
            return
        ranks = gather(self._training.collect_own(), self._session.control)
        self.finish(step)
        saves = self._session.is_main and self.last_saved != step
        files = {**self._training.collect_files(step), RANKS: ranks} if saves else {}
        write: Callable[[], object]
        if self._collective:
            share = self._collective.collect_share()
            files, pieces = self._snapshot.take([files, share.pieces])
            write = partial(self._collective.write, step, files, replace(share, pieces=pieces), self._note)
        elif saves:
            files = self._snapshot.take(files)
            write = partial(self._store.write, step, files, self._note)
        else:
            return
        held_s = time.monotonic() - began

        def write_checkpoint() -> None:
            began = time.monotonic()
            check_plain(files)  # a value may change its type during the training
            write()
            if saves:
                self.last_saved = step
                write_event(self._session, Checkpoint(step=step, held_s=held_s, write_s=time.monotonic() - began))

        self._writing = run_in_background(write_checkpoint)

    def check(self, step: int) -> bool:
        """Report a write that has failed; return whether this rank decides when to save, and writes nothing now."""
        if self._writing and self._writing.done():
            self.finish(step)
        return bool(self._store) and self._session.is_main and self._writing is None

    def finish(self, step: int) -> None:
        """Wait for the write. A disk that refuses it does not end the training: the checkpoint before stays."""
        writing, self._writing = self._writing, None
        try:
            if writing:
                writing.result()
        except OSError as error:
            reason = one_line(f"{error.strerror or error}: {error.filename or (self._store and self._store.folder)}")
            self._session.print(f"WARNING: a checkpoint could not be saved: {reason}; the one before stays")
            write_event(self._session, CheckpointFailed(step=step, reason=reason))

    def describe_saved(self, step: int | None = None) -> str:
        """Return what was saved, for the message of a stop after `step`, or before its end."""
        if step is not None and self.last_saved == step:
            return f"saved step {step}"
        if not self._session.is_main:
            return "rank 0 knows the newest checkpoint"
        newest = self.last_saved
        return "no checkpoint was saved" if newest is None else f"the newest checkpoint is of step {newest}"


def restore_newest(training: TrainingState, store: Store, session: Session) -> int | None:
    """Restore the newest checkpoint, all ranks together; return its step, None when there is no checkpoint."""
    saved = _find_newest(store, session)
    if saved is None:
        return None
    own_states = store.load(saved, RANKS)
    states: State = {"model": store.load(saved, MODEL)} if MODEL in saved.files else {}
    if INDEX in saved.files:
        from slurmddp.runtime.checkpoint import sharded  # noqa: PLC0415 - its imports are slow, and rarely needed

        states |= sharded.load(saved.folder, store.load(saved, INDEX), training.parts)
    step = training.restore(store.load(saved, STATE), states)
    world_size = len(own_states)
    if world_size == session.world_size:
        training.restore_own(own_states[session.rank])
    else:
        session.print(
            f"saved by {world_size} ranks, continuing with {session.world_size}: "
            "random numbers, buffers and `own` of each rank start fresh"
        )
    session.print(f"resumed at step {step} from {saved.folder.name}")
    write_event(session, Resume(step=step, checkpoint=saved.folder.name, from_world_size=world_size))
    return step


def _find_newest(store: Store, session: Session) -> Saved | None:
    """Let rank 0 choose the newest checkpoint; return it on each rank as soon as its node sees the same files.

    Rank 0 sends step and digest; it tells the others also when it fails.
    """
    if session.is_main:
        chosen: str | tuple[int, str] | None = _FAILED
        try:
            adopt(store, session)
            saved = store.newest()
            chosen = (saved.step, saved.digest) if saved else None
            return saved
        finally:
            broadcast(chosen, session.control)
    found = broadcast(None, session.control)
    if found == _FAILED:
        raise PeerError("rank 0 found no checkpoint that can be used, and says why")
    return store.wait_for(found[0], found[1], VISIBLE_LIMIT_S) if found else None
