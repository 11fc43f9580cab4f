"""Lets a rank that survives a fault save the last finished step, so that no step is done twice.

In data parallel training all ranks hold the same parameters. When one is gone, those of any other are still those of
the last finished step, unless its optimizer has begun the next one (Just-In-Time Checkpointing, Gupta et al., EuroSys
2024). The ranks that fail write, without one another, into `.survived-ATTEMPT/`: the first one the parameters and the
optimizer, into `step-STEP/`, and each what only it has, and what it keeps of two other ranks (`own_states`). At the
next start rank 0 makes an ordinary checkpoint of them, where nothing is missing; else the older checkpoint counts.
"""

import hashlib
import json
import os
import shutil
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from slurmddp import variables
from slurmddp.errors import FencedError, RankError
from slurmddp.runs.files import write_whole
from slurmddp.runs.layout import SURVIVED
from slurmddp.runs.training_events import Checkpoint
from slurmddp.runtime.checkpoint.own_states import Buffers, OwnState, Partners, open_states, pack, seal, two_ways
from slurmddp.runtime.checkpoint.staging import map_tensors
from slurmddp.runtime.checkpoint.step_end import Gpu, StepEnd
from slurmddp.runtime.checkpoint.store import Store, save_parts
from slurmddp.runtime.checkpoint.training_state import MODEL, RANKS, STATE, TrainingState, leaves, parameters_of, unwrap
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.session import Session

REACH_LIMIT_S: Final = 3.0
"""For a GPU to reach the end of the last step, if its kernels wait for no other rank."""


class Survivor:
    """What this rank keeps after each step, and saves when the attempt fails."""

    def __init__(self, training: TrainingState, session: Session, store: "Store | None") -> None:
        """Keep nothing without a store, alone, where parts are divided, or where each step would wait for a GPU."""
        self._training, self._session, self._store = training, session, store
        self._attempt = f"{session.job}.{session.attempt}"
        self._parameters = [one for module in training.modules.values() for one in module.parameters()]
        self._known = set(map(id, self._parameters))
        self._gpu: Gpu | None = None
        self._ends: list[StepEnd] = []
        """Of the last two finished steps, with the states of schedulers and the like; none that cannot be saved."""
        self._start = self._finished = -1
        """The step of the start, and the last finished one."""
        self._has_begun = False
        """Whether an optimizer has begun to change that state."""
        self._is_noticed = False
        """Whether one ever did: what changes parameters by other means may leave no trace of it."""
        self._partners: Partners | None = None
        self._own: dict[int, OwnState] = {}
        """This rank's states after the last three steps."""
        self._early = b""
        """This rank's state when the gradients of the step that is going on were there."""
        self._is_proven = False
        """Whether it was that of the step's end in each step of this start; False before the first one is finished."""
        self._is_sent = False
        """Whether the partners have got the message of the step."""
        self._hook: Any = None

    def begin(self, step: int) -> None:
        """Keep the state after each step from now on, where that is possible; all ranks together."""
        self.end()
        session = self._session
        if self._store and session.control and not self._training.divided and self._is_in_reach():
            self._gpu = Gpu(session.device, self._parameters) if session.device.type == "cuda" else None
            self._partners = Partners(session, session.control, two_ways(session.world_size))
            self._buffers = Buffers({name: unwrap(module) for name, module in self._training.modules.items()})
            self._hook = register_optimizer_step_pre_hook(self._note_begun)
            self._start, self._finished = step, -1
            self.keep(step)

    def _is_in_reach(self) -> bool:
        """Return whether no step has to wait for a GPU, as it would for buffers there, and the parameters are plain."""
        if self._session.device.type == "cpu" or os.environ.get(variables.GPU_SURVIVORS) != "1":
            return self._session.device.type == "cpu"
        buffers = [buffer for module in self._training.modules.values() for buffer in module.buffers()]
        own = leaves([self._training.collect_own(with_buffers=False), buffers])
        has_plain = all(type(one) is nn.Parameter and one.layout is torch.strided for one in self._parameters)
        return has_plain and all(leaf.is_cpu for leaf in own if isinstance(leaf, torch.Tensor))

    def _pack(self) -> bytes:
        broadcast = () if self._session.is_main else self._training.find_broadcast()
        return pack(self._training.collect_own(with_buffers=False), self._buffers.read(but=broadcast))

    def _note_begun(self, optimizer: Optimizer, *_: object) -> None:
        if self._partners and not self._has_begun and not self._known.isdisjoint(map(id, parameters_of(optimizer))):
            if self._is_proven or self._finished == self._start:
                self._early = self._pack()
            if self._is_proven:
                self._send(self._partners, self._keep_own(self._finished + 1, self._early, is_early=True))
            self._exchange(self._partners)  # before a rank can finish the step
            self._has_begun = self._is_noticed = True
            for end in self._ends[-1:]:
                end.leave()

    def _send(self, partners: Partners, *states: OwnState) -> None:
        partners.send(seal(self._session.secret, *states))
        self._is_sent = True

    def _exchange(self, partners: Partners) -> None:
        if not self._is_sent:
            self._send(partners)
        partners.receive()

    def keep(self, step: int) -> None:
        """Keep what only this rank has after a finished step."""
        if self._partners is None:
            return
        if not self._has_begun:
            self._exchange(self._partners)
        is_first, packed = self._finished == self._start, self._pack()
        self._finished, before, self._ends = step, self._ends[-1:], []
        self._is_proven = packed == self._early != b""
        tensors: list[torch.Tensor] = [*self._parameters]

        def keep_tensor(_: object, tensor: torch.Tensor) -> torch.Tensor:
            if self._gpu and tensor.is_cpu:
                return tensor.clone()  # it is ahead of the GPU
            tensors.append(tensor)
            return tensor

        others = map_tensors(self._training.collect_others(with_states=bool(self._gpu)), keep_tensor)
        own = self._keep_own(step, packed, is_early=False)
        if packed and self._is_noticed:
            self._ends = [*before, StepEnd(step, tensors, others, self._gpu)]
        self._early, self._is_sent, self._has_begun = b"", False, False
        if is_first or not self._is_proven:  # else they have it since its gradients were there
            self._send(self._partners, own)
            self._is_sent = not is_first  # after the first step, all ranks send one message more

    def _keep_own(self, step: int, packed: bytes, *, is_early: bool) -> OwnState:
        own = self._own[step % 3] = OwnState(self._attempt, step, self._session.rank, is_early, packed)
        return own

    def save(self) -> None:
        """Save the last finished step, if this rank still holds it, and what it keeps of itself and its partners.

        The training's thread waits for its peers, or has failed.
        """
        if not self._store or not self._partners:
            return
        folder = self._store.folder / f".survived-{self._attempt}"
        try:
            self._store.check_owner()
            folder.mkdir(mode=0o700, exist_ok=True)
            own = seal(self._session.secret, *[*self._own.values()])
            write_whole(folder / str(self._session.rank), bytes(own) + self._partners.kept(self._session.secret))
            with self._gpu.reading() if self._gpu else nullcontext():
                if end := self._find_held():
                    self._save_step(self._store, folder / f"step-{end.step:09d}", end)
        except OSError as error:
            print_line(f"rank {self._session.rank} could not save step {self._finished}: {error.strerror or error}")

    def _save_step(self, store: Store, folder: Path, end: StepEnd) -> None:
        """Save what all ranks have in common, as the first one; else only its digest."""
        rank, step, is_first = self._session.rank, end.step, False
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            is_first = True
        write_whole(folder / f"{rank}.digest", self._digest())
        if is_first:
            files = self._training.collect_files(step)
            parts = files[STATE]["parts"]
            parts.update(end.others["parts"])
            for name, options in end.others["options"].items():
                for group, kept in zip(parts[name]["param_groups"], options):
                    group.update(kept)
            for name, states in end.others["states"].items():  # one that has been made since is left out
                parts[name]["state"] = dict(zip(parts[name]["state"], states))
            save_parts(map_tensors(files, lambda _, tensor: tensor.detach().cpu()), folder)
            store.check_owner()
            if end.is_held():  # still
                note = {"attempt": self._attempt, "step": step, "world_size": self._session.world_size}
                note["digests"] = 2 if self._gpu else 1
                write_whole(folder / SURVIVED, json.dumps(note).encode())
                print_line(f"rank {rank} saved step {step}, the last finished one")

    def _digest(self) -> bytes:
        """Return the SHA-256 of all parameters."""
        digest = hashlib.sha256()
        for parameter in self._parameters:
            digest.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.digest()

    def _find_held(self) -> "StepEnd | None":
        """Return the newest step end that this rank still holds."""
        until = time.monotonic() + REACH_LIMIT_S
        while self._ends and not self._ends[-1].is_reached() and time.monotonic() < until:
            time.sleep(0.02)
        return next((end for end in reversed(self._ends) if end.is_held()), None)

    def leave_loop(self) -> None:
        """Ask nothing more of the other ranks: this one may go on alone."""
        if self._hook:
            self._hook.remove()

    def end(self) -> None:
        """Keep nothing more; all ranks together."""
        self.leave_loop()
        if self._partners:
            self._exchange(self._partners)
        self._ends, self._partners, self._hook, self._own = [], None, None, {}
        self._early, self._is_sent, self._has_begun, self._is_proven = b"", False, False, False


def adopt(store: Store, session: Session) -> None:
    """Make a checkpoint of the newest step that survivors have saved and of which nothing is missing, on rank 0."""
    began, notes = time.monotonic(), [*store.folder.glob(f".survived-*/*/{SURVIVED}")]
    newest = store.newest() if notes else None
    for path in sorted(notes, key=lambda one: one.parent.name, reverse=True):
        step = int(path.parent.name.removeprefix("step-"))
        if newest and step <= newest.step:
            break
        try:
            _adopt_step(store, session, path.parent, step)
        except FencedError:
            raise
        except Exception as error:  # noqa: BLE001 - damaged files raise anything, and the older checkpoint is there
            why = str(error) or type(error).__name__
            session.print(f"step {step}, saved by a survivor, cannot be used: {why}")
            continue
        write_event(session, Checkpoint(step=step, held_s=0.0, write_s=time.monotonic() - began))
        break
    for left in store.folder.glob(".survived-*"):
        store.check_owner()
        shutil.rmtree(left, ignore_errors=True)


def _adopt_step(store: Store, session: Session, folder: Path, step: int) -> None:
    """Make a checkpoint of what survivors have saved in a folder; raise an error if that is not possible."""
    note = json.loads((folder / SURVIVED).read_bytes())
    ranks, own = range(note["world_size"]), _read_own(folder.parent, note["attempt"], step)
    if gone := [rank for rank in ranks if rank not in own]:
        raise RankError(f"the state of {session.list_ranks(gone)} is lost")
    digests = [file.read_bytes() for file in folder.glob("*.digest")]
    if len({*digests}) > 1:
        raise RankError("the ranks' parameters differ")
    if len(digests) < note.get("digests", 1):
        raise RankError("on a GPU, two ranks must hold the same parameters, and only one did")
    if early := [rank for rank in ranks if own[rank].is_early]:
        session.print(
            f"{session.list_ranks(early)} was lost in step {step - 1}: random numbers and buffers are from within it, "
            "after which no step before it has changed them"
        )
    parts = {name: torch.load(folder / name, map_location="cpu", weights_only=True) for name in (MODEL, STATE)}
    states = [own[rank].state for rank in ranks]
    shared = states[0]["buffers"]
    parts[MODEL].update({path: value for path, value in shared["model"].items() if path in parts[MODEL]})
    for state in states:  # what the next forward takes from rank 0 was not sent by the others
        state["buffers"] = {name: {**shared[name], **own} for name, own in state["buffers"].items()}
    by = {"job": session.job, "attempt": session.attempt, "world_size": len(ranks)}
    store.write(step, {**parts, RANKS: states}, by)


def _read_own(folder: Path, attempt: str, step: int) -> dict[int, OwnState]:
    """Return the states of the ranks after a step, and of a rank that did not reach its end that after its forward."""
    files = [path.read_bytes() for path in folder.iterdir() if path.is_file()]
    found = [one for content in files for one in open_states(content) if (one.attempt, one.step) == (attempt, step)]
    return {one.rank: one for one in sorted(found, key=lambda one: one.is_early, reverse=True)}
