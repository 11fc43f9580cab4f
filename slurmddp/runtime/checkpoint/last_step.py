"""Keeps what a rank needs to save the last finished step of a framework's Trainer, when all others may be gone.

In data parallel training on the CPU all ranks hold the same parameters. The rest goes to all ranks twice a step: before
an optimizer begins, and once more before the next step, if the program has changed it meanwhile.
"""

from __future__ import annotations
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint.own_states import OwnState, open_row, pack
from slurmddp.runtime.checkpoint.staging import State
from slurmddp.runtime.checkpoint.survivors import versions_of
from slurmddp.runtime.launch.rank import Rank


class _Shared(NamedTuple):
    """What all ranks get: a row of each rank with what only it has, and one with the buffers of rank 0."""

    rows: list[torch.Tensor]
    works: list[Any]

    def wait(self) -> None:
        """Wait for all rows; raise torch's error for a lost rank."""
        for work in self.works:
            work.wait()


class LastStep:
    """The last finished step. All ranks make it, and call `share`, `finish` and `settle` alike."""

    def __init__(
        self, module: nn.Module, group: dist.ProcessGroup, rank: Rank, collect: Callable[[], State] | None = None
    ) -> None:
        """Agree with all ranks on the length of a row. `collect` returns what only this rank has."""
        self.step = -1
        self._group, self._rank, self._collect = group, rank, collect
        self._module, self._parameters = module, [*module.parameters()]
        self._names = module.state_dict().keys() & dict(module.named_buffers(remove_duplicate=False)).keys()
        """Of the buffers that a checkpoint has."""
        self._versions: list[int] | None = None
        """Of each parameter after that step; None while something follows it, or the next one changes them."""
        self._early: _Shared | None = None
        """As it was before the step's optimizer began."""
        self._final: _Shared | None = None
        """As it was before the next step began."""
        self._is_proven: bool | None = None
        """Whether these two have been the same at each step; None before the first."""
        sizes = torch.tensor([len(pack(collect())) if collect else 0, len(pack(self._collect_buffers()))])
        dist.all_reduce(sizes, dist.ReduceOp.MAX, group)
        self._room, self._buffer_room = (size + 4096 for size in sizes.tolist())  # they may grow a little

    def _collect_buffers(self) -> State:
        buffers = self._module.named_buffers(remove_duplicate=False) if self._names else ()
        return {name: buffer for name, buffer in buffers if name in self._names}

    def share(self, step: int) -> None:
        """Give all ranks what this one has before its optimizer begins this step, and wait for theirs."""
        if self._final:
            self._final.wait()
            if self._early:
                is_same = all(map(torch.equal, self._early.rows, self._final.rows))
                self._is_proven = is_same and self._is_proven is not False
        early = self._send(step)
        early.wait()
        self._versions, self._early, self._final = None, early, None

    def finish(self, step: int, *, is_settled: bool = True) -> None:
        """Note a finished step. What follows it, as an evaluation, may change the states until `settle`."""
        self.step = step
        self._early = self._early if is_settled else None
        self._versions = versions_of(self._parameters) if is_settled else None

    def settle(self, step: int) -> None:
        """Give all ranks what this one has, now that all that follows the last finished step is over."""
        if step == self.step and not self._final:
            self._final = self._send(step)
            self._versions = versions_of(self._parameters)

    def _send(self, step: int) -> _Shared:
        shared = _Shared([], [])
        if self._collect:
            own = self._seal(step, self._collect(), self._room)
            shared.rows.extend(torch.zeros_like(own) for _ in range(self._rank.world_size))
            shared.works.append(dist.all_gather([*shared.rows], own, self._group, async_op=True))
        if self._names:
            row = self._seal(step, self._collect_buffers() if self._rank.is_main else {}, self._buffer_room)
            shared.rows.append(row)
            shared.works.append(dist.broadcast(row, 0, self._group, async_op=True))
        return shared

    def _seal(self, step: int, state: State, room: int) -> torch.Tensor:
        own = OwnState(self._rank.attempt, step, self._rank.rank, is_early=False, state=pack(state))
        sealed = own.seal(self._rank.secret)
        row = bytearray(room)
        row[: len(sealed)] = sealed if len(sealed) <= room else bytes(room)
        return torch.frombuffer(row, dtype=torch.uint8)

    def is_held(self) -> bool:
        """Tell whether this rank still has the parameters of that step."""
        return self._versions is not None and versions_of(self._parameters) == self._versions

    def read(self) -> tuple[list[State], State]:
        """Return what each rank had after that step, and its buffers; raise RankError where something did not come."""
        expected = self._rank.world_size * bool(self._collect) + bool(self._names)
        found: dict[int, State] = {}
        for shared in (self._early if self._is_proven else None, self._final):
            for place, row in enumerate(shared.rows if shared else ()):
                one = open_row(row.numpy().tobytes(), self._rank.secret)
                if one and one.step == self.step:
                    found[place] = one.state
        states = [found[place] for place in sorted(found)]
        if len(states) < expected:
            raise RankError("the states of all ranks after it are not here")
        return (states[:-1], states[-1]) if self._names else (states, {})
