"""The state of a training that a checkpoint holds: collected before a save, put back after a start. No files.

A checkpoint has these files, and those of `sharded` when a part is divided among the ranks:
model.pt    the model's state_dict; left out when the model is divided
state.pt    the step, the states of the other parts that are not divided, the order of the gradients
ranks.pt    for each rank, the state that only this rank has
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from slurmddp.runtime.checkpoint import state_dicts
from slurmddp.runtime.checkpoint.ddp_buckets import find_layouts
from slurmddp.runtime.checkpoint.staging import check_plain
from slurmddp.runtime.checkpoint.state_dicts import State, Stateful
from slurmddp.runtime.checkpoint.store import INDEX, Saved, Store

MODEL, STATE, RANKS = "model.pt", "state.pt", "ranks.pt"


class TrainingState:
    """The model and the other parts of a training, sorted by which ranks hold their state."""

    def __init__(
        self, *, model: nn.Module, shared: Mapping[str, Stateful], own: Mapping[str, Stateful], device: torch.device
    ) -> None:
        self._model, self._own, self._device = model, own, device
        self._parts: dict[str, Stateful] = {"model": model, **shared}
        self.modules = {name: part for name, part in self._parts.items() if isinstance(part, nn.Module)}
        self.divided = {name: part for name, part in self._parts.items() if state_dicts.is_divided(part)}
        """Parts of which each rank holds only pieces."""
        self._replicated = {name: part for name, part in shared.items() if name not in self.divided}
        self._layouts = find_layouts(self.modules)
        self._random: State | None = None

    def watch_gradients(self) -> None:
        """Record in which order the gradients of the step that begins now become ready, unless that is known."""
        for layout in self._layouts.values():
            layout.watch()

    def settle_gradients(self) -> None:
        """Keep the order that was recorded in the step that has just ended."""
        for layout in self._layouts.values():
            layout.settle()

    def check_plain(self) -> None:
        """Raise RankError when a checkpoint cannot hold a state that this rank has in full."""
        for name, content in {**state_dicts.collect(self._replicated), **state_dicts.collect(self._own)}.items():
            check_plain(content, name)

    def collect_files(self, step: int) -> dict[str, Any]:
        """Return the contents of model.pt and state.pt; nothing is copied."""
        shared = {
            "step": step,
            "layouts": {name: layout.order for name, layout in self._layouts.items()},
            "parts": state_dicts.collect(self._replicated),
        }
        model = {} if "model" in self.divided else {MODEL: state_dicts.state_of(self._model)}
        return {**model, STATE: shared}

    def collect_own(self) -> State:
        """Return the state that only this rank has."""
        return state_dicts.collect_own(self.modules, self._own, self._device)

    def restore(self, store: Store, saved: Saved) -> tuple[int, list[State]]:
        """Restore everything but the ranks' own states; return the step and the own state of each rank."""
        shared, ranks = (store.load(saved, name) for name in (STATE, RANKS))
        states = {"model": store.load(saved, MODEL)} if MODEL in saved.files else {}
        if INDEX in saved.files:
            from slurmddp.runtime.checkpoint import sharded  # noqa: PLC0415 - its imports are slow, and rarely needed

            states |= sharded.load(saved.folder, store.load(saved, INDEX), self._parts)
        state_dicts.restore(self._parts, {**states, **shared["parts"]})
        for name, layout in self._layouts.items():
            layout.restore(shared["layouts"].get(name, []))
        return shared["step"], ranks

    def restore_own(self, own: State) -> None:
        """Restore the state that only this rank has; its random numbers wait for `restore_random`."""
        state_dicts.restore_own(self.modules, self._own, self._device, own)
        self._random = own["random"]

    def restore_random(self) -> None:
        """Restore the random number generators once, just before the first step."""
        if self._random is not None:
            state_dicts.restore_random(self._random, self._device)
            self._random = None
