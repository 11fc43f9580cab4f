"""Lets a rank that survives a fault save the last finished step of a framework's Trainer, without any other rank.

In data parallel training on the CPU all ranks hold the same parameters. What else a checkpoint needs, each rank gives
to all others before any of them can finish the step.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint.own_states import Buffers, OwnState, Partners, open_states, pack, seal
from slurmddp.runtime.checkpoint.staging import State
from slurmddp.runtime.checkpoint.step_end import StepEnd
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.stopping.consensus import LoopStop


class LastStep:
    """The last finished step. All ranks make it, and call its methods but `save` alike."""

    def __init__(self, stop: LoopStop, module: nn.Module, collect: Callable[[], State] = dict) -> None:
        """Keep nothing yet; `collect` returns what only this rank has, apart from its buffers."""
        self._stop, self._rank, self._collect = stop, stop.stopping.rank, collect
        self._parameters = [*module.parameters()]
        self._names = module.state_dict().keys() & dict(module.named_buffers(remove_duplicate=False)).keys()
        """Of the buffers that a checkpoint has."""
        self._is_alike = not self._names and collect is dict
        """Whether all ranks have the same."""
        self._buffers = Buffers({"model": module} if self._rank.is_main else {})
        self._step = -1
        """The last finished one."""
        self._end: StepEnd | None = None
        """Of that step; None where this rank cannot save it."""
        self._is_forgotten = False
        self._is_final = True
        """Whether no step has changed what was sent before its end."""
        self._sent = OwnState(self._rank.attempt, -1, self._rank.rank, is_early=True, state=b"")
        """This rank's state that was sent last; as long as `_end` is held, that of the last finished step."""
        self._partners = Partners(self._rank, stop.group, range(1, self._rank.world_size))

    def _pack(self) -> bytes:
        """Return what only this rank has, and as rank 0 the buffers, which DDP takes from there."""
        buffers = self._buffers.read().get("model", {})
        return pack({"own": self._collect()}, {path: buffers[path] for path in buffers if path in self._names})

    def share(self, step: int) -> None:
        """Give all ranks what this one has before its optimizer begins this step, and wait for theirs."""
        self._sent = OwnState(self._rank.attempt, step, self._rank.rank, not self._is_final, self._pack())
        if not self._is_alike:
            self._partners.send(seal(self._rank.secret, self._sent))
            self._partners.receive()
        self._end, self._is_forgotten = None, False

    def finish(self, step: int) -> None:
        """Note a finished step, unless it has changed what was sent."""
        self._step = step
        self._is_final = self._is_final and self._pack() == self._sent.state
        self._end = StepEnd(step, self._parameters) if self._is_final and step == self._sent.step else None

    def forget(self) -> None:
        """Note that something follows the last step, such as an evaluation, which a resumed training would not do."""
        self._end, self._is_forgotten = None, self._step >= 0

    def renew(self) -> None:
        """Share the last step again, if it was forgotten: what followed is over."""
        if self._is_forgotten:
            self.share(self._step)
            self.finish(self._step)

    def _is_held(self) -> bool:
        return self._end is not None and self._end.is_held()

    def _read(self) -> list[State]:
        """Return what each rank had after that step; raise RankError where a rank may have had something else."""
        known = open_states(seal(self._rank.secret, self._sent) + self._partners.kept(self._rank.secret))
        found = [one for one in known if one.step == self._step and not one.is_early]
        states = {one.rank: one.state for one in found}
        if len(states) < self._rank.world_size and not self._is_alike:
            raise RankError("it is not known what each rank alone had at its end")
        return [states[rank] for rank in sorted(states)]

    def save(self, new: Path, final: Path, write: Callable[[Path, list[Any], State], None]) -> None:
        """Save that step to `final`, as the first rank that makes the folder `new`, if this one still holds it.

        `write` gets a path there, what `collect` returned on each rank, and the buffers. A full disk costs nothing; a
        saved step leaves `new` empty, so that no other rank saves it again.
        """
        if not self._is_held():
            return
        is_first = is_saved = False
        try:
            states = self._read()
            new.mkdir(parents=True)
            is_first = True
            write(new / final.name, [state["own"] for state in states], states[0]["buffers"] if states else {})
            self._stop.check_owner(anyone=True)
            if self._is_held():  # still
                (new / final.name).replace(final)
                is_saved = True
                print_line(f"rank {self._rank.rank} saved step {self._step}, the last finished one")
        except Exception as error:  # noqa: BLE001 - for a full disk, each library has an error of its own
            if is_first or not isinstance(error, FileExistsError):  # else another one saves
                print_line(f"rank {self._rank.rank} could not save step {self._step}: {error}")
        finally:
            if is_first and not is_saved:
                shutil.rmtree(new, ignore_errors=True)
