"""Restores the newest checkpoint on all ranks."""

import torch.distributed as dist

from slurmddp.errors import PeerError
from slurmddp.runs.training_events import Resume
from slurmddp.runtime.checkpoint.staging import State, broadcast
from slurmddp.runtime.checkpoint.store import INDEX, Saved, Store
from slurmddp.runtime.checkpoint.training_state import MODEL, RANKS, STATE, TrainingState
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.session import Session

VISIBLE_LIMIT_S = 60.0
"""Time for a checkpoint that rank 0 sees to become visible on the other nodes."""
_FAILED = "failed"
"""Sent in place of a checkpoint when rank 0 cannot use one."""


def restore_newest(training: TrainingState, store: Store, session: Session) -> int | None:
    """Restore the newest checkpoint, all ranks together; return its step, None when there is no checkpoint."""
    saved = _find_newest(store, session)
    if saved is None:
        return None
    own_states = store.load(saved, RANKS)
    step = training.restore(store.load(saved, STATE), _load_parts(training, store, saved))
    world_size = len(own_states)
    if world_size == session.world_size:
        training.restore_own(own_states[session.rank])
    else:
        session.print(
            f"saved by {world_size} ranks, continuing with {session.world_size}: "
            "random numbers, buffers and `own` of each rank start fresh"
        )
    session.print(f"resumed at step {step} from {saved.folder.name}")
    write_event(session.who, Resume(step=step, checkpoint=saved.folder.name, from_world_size=world_size))
    return step


def _load_parts(training: TrainingState, store: Store, saved: Saved) -> State:
    """Return the states that have files of their own, those of divided parts included."""
    states: State = {"model": store.load(saved, MODEL)} if MODEL in saved.files else {}
    if INDEX in saved.files:
        from slurmddp.runtime.checkpoint import sharded  # noqa: PLC0415 - its imports are slow, and rarely needed

        states |= sharded.load(saved.folder, store.load(saved, INDEX), training.parts)
    return states


def _find_newest(store: Store, session: Session) -> Saved | None:
    """Let rank 0 choose the newest checkpoint; return it on each rank as soon as its node sees the same files."""
    if session.control is None:
        return store.newest()
    if session.is_main:
        return _choose_for_all(store, session.control)
    chosen = broadcast(None, session.control)
    if chosen == _FAILED:
        raise PeerError("rank 0 found no checkpoint that can be used, and says why")
    if chosen is None:
        return None
    step, digest = chosen
    return store.wait_for(step, digest, VISIBLE_LIMIT_S)


def _choose_for_all(store: Store, group: dist.ProcessGroup) -> Saved | None:
    """Send step and digest of the newest checkpoint to the other ranks, as rank 0; tell them also when this fails."""
    chosen: str | tuple[int, str] | None = _FAILED
    try:
        saved = store.newest()
        chosen = (saved.step, saved.digest) if saved else None
        return saved
    finally:
        broadcast(chosen, group)
