"""Lets a rank that survives a fault save the last finished step, so that no step is done twice.

In data parallel training all ranks hold the same parameters. When one is gone, those of any other are still those of
the last finished step, unless its optimizer has begun the next one (Just-In-Time Checkpointing, Gupta et al., EuroSys
2024). The ranks that fail write, without one another, into `.survived-ATTEMPT/`: the first one the parameters and the
optimizer, into `step-STEP/`, and each what only it has, and what it keeps of two other ranks (`own_states`). At the
next start rank 0 makes an ordinary checkpoint of them, where nothing is missing; else the older checkpoint counts.
"""

from __future__ import annotations
import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from slurmddp.runs.files import write_whole
from slurmddp.runs.training_events import Checkpoint
from slurmddp.runtime.checkpoint.own_states import OwnState, Partners, is_sealed, open_states, pack
from slurmddp.runtime.checkpoint.staging import State, map_tensors
from slurmddp.runtime.checkpoint.store import Store, save_parts
from slurmddp.runtime.checkpoint.training_state import MODEL, RANKS, STATE, TrainingState, parameters_of
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.session import Session

_NOTE: Final = "survived.json"


class Survivor:
    """What this rank keeps after each step, and saves when the attempt fails."""

    def __init__(self, training: TrainingState, session: Session, store: Store | None) -> None:
        """Keep nothing without a store, alone, on a GPU, or where parts are divided among the ranks."""
        self._training, self._session, self._store = training, session, store
        self._parameters = [one for module in training.modules.values() for one in module.parameters()]
        self._known = set(map(id, self._parameters))
        self._tensors: list[torch.Tensor] = []
        """What a survivor saves as it is, and the version of each after the last finished step."""
        self._versions: list[int] = []
        self._others: State = {}
        """The states of schedulers and the like after that step, and the options of the optimizers."""
        self._finished = 0
        """The last finished step."""
        self._can_save = False
        """Whether this rank's own state after it is kept."""
        self._has_begun = False
        """Whether an optimizer has begun to change that state."""
        self._partners: Partners | None = None
        self._kept: dict[tuple[int, int], bytes] = {}
        """The states after the last two steps, of each partner by its place, and of this rank at place -1."""
        self._early = b""
        """This rank's state after the last forward of the step that is going on."""
        self._early_sealed = b""
        self._is_steady: bool | None = None
        """Whether that state was the final one in all steps; None before the first."""
        self._hooks: tuple[Any, ...] = ()

    def begin(self, step: int) -> None:
        """Keep the state after each step from now on, where that is possible; all ranks together."""
        self.end()
        on_gpu, session = self._session.device.type != "cpu", self._session
        if self._store and session.control and not (on_gpu or self._training.divided):
            self._partners = Partners(session, len(pack(self._training.collect_own())))
            after_forward = self._training.modules["model"].register_forward_hook(self._keep_early)
            self._hooks = (register_optimizer_step_pre_hook(self._note_begun), after_forward)
            self.keep(step)

    def _note_begun(self, optimizer: Optimizer, *_: object) -> None:
        if self._partners and not self._has_begun and not self._known.isdisjoint(map(id, parameters_of(optimizer))):
            self._receive(self._partners, self._finished)
            self._partners.send(self._early_sealed)
            self._receive(self._partners, self._finished + 1)  # before a rank can finish the step
            self._has_begun = True

    def _receive(self, partners: Partners, step: int) -> None:
        self._kept.update({(place, step % 2): sealed for place, sealed in enumerate(partners.receive()) if sealed})

    def _keep_early(self, model: nn.Module, *_: object) -> None:
        """Keep what only this rank has after a forward: a rank that dies later may have given its gradients away."""
        if self._is_steady is not False and model.training:
            self._early = pack(self._training.collect_own())
            if self._is_steady:
                self._early_sealed = self._seal(self._finished + 1, self._early, is_early=True)

    def keep(self, step: int) -> None:
        """Keep what only this rank has after a finished step."""
        if self._partners is None:
            return
        if not self._has_begun:
            self._receive(self._partners, self._finished)
        self._finished, self._can_save = step, False
        own = pack(self._training.collect_own())
        if self._early:
            self._is_steady = own == self._early
        self._early = self._early_sealed = b""
        self._tensors, self._has_begun = [*self._parameters], False
        self._others = map_tensors(self._training.collect_others(), self._watch)
        self._versions = _versions_of(self._tensors)
        sealed = self._seal(step, own, is_early=False)
        self._can_save = bool(sealed)
        self._partners.send(sealed)

    def _seal(self, step: int, own: bytes, *, is_early: bool) -> bytes:
        """Keep a state of this rank, and return it sealed; empty where that is not possible."""
        sealed = OwnState(_name(self._session), step, self._session.rank, is_early, own).seal(self._session.secret)
        self._kept[-1, step % 2] = sealed
        return sealed

    def _watch(self, _: object, tensor: torch.Tensor) -> torch.Tensor:
        self._tensors.append(tensor)
        return tensor

    def save(self) -> None:
        """Save the last finished step, if this rank still holds it, and what it keeps of itself and its partners.

        The training's thread waits for its peers, or has failed.
        """
        if not self._store or not self._partners:
            return
        folder = self._store.folder / f".survived-{_name(self._session)}"
        try:
            self._store.check_owner()
            folder.mkdir(mode=0o700, exist_ok=True)
            kept = [sealed for sealed in [*self._kept.values()] if is_sealed(sealed, self._session.secret)]
            write_whole(folder / str(self._session.rank), b"".join(kept))
            if self._is_held():
                self._save_step(self._store, folder / f"step-{self._finished:09d}")
        except OSError as error:
            print_line(f"rank {self._session.rank} could not save step {self._finished}: {error.strerror or error}")

    def _save_step(self, store: Store, folder: Path) -> None:
        """Save what all ranks have in common, as the first one; else only its digest."""
        rank, step, is_first = self._session.rank, self._finished, False
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            is_first = True
        write_whole(folder / f"{rank}.digest", self._digest())
        if is_first:
            files = self._training.collect_files(step)
            parts = files[STATE]["parts"]
            parts.update(self._others["parts"])
            for name, options in self._others["options"].items():
                for group, kept in zip(parts[name]["param_groups"], options):
                    group.update(kept)
            save_parts(files, folder)
            store.check_owner()
            if self._is_held():  # still
                note = {"attempt": _name(self._session), "step": step, "world_size": self._session.world_size}
                write_whole(folder / _NOTE, json.dumps(note).encode())
                print_line(f"rank {rank} saved step {step}, the last finished one")

    def _digest(self) -> bytes:
        """Return the SHA-256 of all parameters."""
        digest = hashlib.sha256()
        for parameter in self._parameters:
            digest.update(parameter.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.digest()

    def _is_held(self) -> bool:
        return self._can_save and not self._has_begun and _versions_of(self._tensors) == self._versions

    def leave_loop(self) -> None:
        """Ask nothing more of the other ranks: this one may go on alone."""
        for hook in self._hooks:
            hook.remove()

    def end(self) -> None:
        """Keep nothing more."""
        self.leave_loop()
        if self._partners:
            self._partners.receive()
        self._can_save, self._partners, self._hooks, self._kept = False, None, (), {}


def adopt(store: Store, session: Session) -> None:
    """Make a checkpoint of the newest step that survivors have saved and of which nothing is missing, on rank 0."""
    began, notes = time.monotonic(), sorted(_read_notes(store), key=lambda one: one[1]["step"], reverse=True)
    newest = store.newest() if notes else None
    for folder, note in notes:
        step, ranks = note["step"], range(note["world_size"])
        if newest and step <= newest.step:
            break
        own = _read_own(folder.parent, note["attempt"], step)
        digests = {file.read_bytes() for file in folder.glob("*.digest")}
        gone = [rank for rank in ranks if rank not in own]
        if gone or len(digests) > 1:
            why = f"the state of {session.list_ranks(gone)} is lost" if gone else "the ranks' parameters differ"
            session.print(f"step {step}, saved by a survivor, cannot be used: {why}")
            continue
        if early := [rank for rank in ranks if own[rank].is_early]:
            session.print(
                f"{session.list_ranks(early)} ended before the end of step {step - 1}, whose gradients all ranks had: "
                "random numbers and buffers there are those after the forward, which no earlier step has changed later"
            )
        parts = {name: torch.load(folder / name, map_location="cpu", weights_only=True) for name in (MODEL, STATE)}
        states = [own[rank].state for rank in ranks]
        buffers = states[0]["buffers"]["model"].items()
        parts[MODEL].update({name: value for name, value in buffers if name in parts[MODEL]})
        by = {"job": session.job, "attempt": session.attempt, "world_size": len(ranks)}
        store.write(step, {**parts, RANKS: states}, by)
        write_event(session, Checkpoint(step=step, held_s=0.0, write_s=time.monotonic() - began))
        break
    for left in store.folder.glob(".survived-*"):
        store.check_owner()
        shutil.rmtree(left, ignore_errors=True)


def _read_notes(store: Store) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield what survivors have saved in full."""
    for path in store.folder.glob(f".survived-*/*/{_NOTE}"):
        with suppress(OSError, ValueError):
            yield path.parent, json.loads(path.read_bytes())


def _read_own(folder: Path, attempt: str, step: int) -> dict[int, OwnState]:
    """Return the states of the ranks after a step, and of a rank that did not reach its end that after its forward."""
    files = [path.read_bytes() for path in folder.iterdir() if path.is_file()]
    found = [one for content in files for one in open_states(content) if (one.attempt, one.step) == (attempt, step)]
    return {one.rank: one for one in sorted(found, key=lambda one: one.is_early, reverse=True)}


def _versions_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    return [tensor._version for tensor in tensors]  # noqa: SLF001 - of autograd, which counts changes


def _name(session: Session) -> str:
    return f"{session.job}.{session.attempt}"
