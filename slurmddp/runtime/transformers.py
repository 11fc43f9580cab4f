"""Saves, stops and resumes a training by Hugging Face's Trainer, without a change of the script.

The worker watches for the import of `transformers.trainer`, and has `Trainer.train` wrapped there. The wrapper adds a
callback and chooses the checkpoint to resume from. Trainer's own answer to SIGTERM (`enable_jit_checkpoint`) is not
enough: each rank leaves after a different step, and the program ends with status 0.
"""

from __future__ import annotations
import contextlib
import copy
import dataclasses
import itertools
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from slurmddp.runs.files import append_record, read_records
from slurmddp.runtime import patches
from slurmddp.runtime.checkpoint.last_step import LastStep
from slurmddp.runtime.stopping.consensus import LoopStop
from slurmddp.runtime.stopping.stopping import Stopping

STATE = "trainer_state.json"
"""Rank 0 writes this file of a checkpoint last; each rank's last file is that of its random state."""


def adopt(module: Any, stopping: Stopping, checkpoints: Path) -> None:
    """Wrap `Trainer.train`. The calls have the same numbers in each attempt."""
    calls = itertools.count(1)

    def wrap_train(train: Callable[..., Any]) -> Callable[..., Any]:
        def train_and_stop(
            trainer: Any, resume_from_checkpoint: Any = None, trial: Any = None, *words: Any, **more: Any
        ) -> Any:
            if trial is not None:
                return train(trainer, resume_from_checkpoint, trial, *words, **more)
            folder = str(Path(trainer.args.output_dir).resolve())
            record = _Record(checkpoints / f"transformers-{next(calls)}.jsonl", folder)
            callback = type("SaveAtStop", (_SaveAtStop, module.TrainerCallback), {})(trainer, stopping, record)
            trainer.add_callback(callback)  # as the last one, so that all others have run when it stops
            try:
                return train(trainer, callback.choose(resume_from_checkpoint or None), trial, *words, **more)
            except BaseException as error:
                callback.stop.fail(error)
                raise
            finally:
                trainer.remove_callback(callback)
                vars(trainer).pop("_run_epoch", None)

        return train_and_stop

    def wrap_install(install: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda manager: None if stopping.signals.all_handlers_ours else install(manager)

    patches.replace(patches.TRAINER, wrap_train)
    patches.replace(patches.TRAINER_HANDLER, wrap_install)


class _SaveAtStop:
    """Does by Trainer's hooks what `Checkpointer.steps` does at a stop request."""

    def __init__(self, trainer: Any, stopping: Stopping, record: _Record) -> None:
        self.stop = LoopStop(stopping)
        self.last: LastStep | None = None
        """A LastStep, where a survivor of a fault can save it."""
        self._trainer = trainer
        self._record = record
        self._is_stopping = self._leaves_at_save = False

    def choose(self, given: Any) -> Any:
        """Return what to resume from: rank 0 looks, and all ranks take the same.

        A path is taken at its word, unless it is a checkpoint of this run that is not complete.
        """
        chosen = [given]
        if self.stop.stopping.rank.is_main:
            self.stop.check_owner()
            rank = self.stop.stopping.rank
            newest, incomplete = self._record.sort(self._trainer.args.world_size)
            for path in incomplete:
                path.rename(path.with_name(f"incomplete-{path.name}-{rank.job}-{rank.attempt}"))
            for left in Path(self._record.folder).glob(f"survivor-{rank.job}-*"):
                shutil.rmtree(left, ignore_errors=True)
            is_path = isinstance(given, (str, os.PathLike))
            if not is_path or Path(given).resolve() in incomplete:
                chosen = [newest or (None if is_path else given)]
        if self._trainer.args.world_size > 1:
            dist.broadcast_object_list(chosen, src=0)
        return chosen[0]

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Begin to agree with all ranks on a step to stop at; a complete training takes no other step."""
        if state.global_step >= state.max_steps or self._record.ended == [state.global_step, state.max_steps]:
            self._trainer._run_epoch = lambda *_, **__: None  # noqa: SLF001 - it would take one more step
        elif self.stop.stopping.rank.is_main:
            self._record.append(world_size=args.world_size)  # before this attempt writes there
        if self.stop.stopping.signals.all_handlers_ours:
            self.stop.begin(state.global_step, world_size=args.world_size, rescue=self._rescue)
            trainer = self._trainer
            is_ddp = type(trainer.model_wrapped).__name__ == "DistributedDataParallel" and args.device.type == "cpu"
            saves = (type(trainer).save_model, type(trainer)._save_checkpoint)  # noqa: SLF001 - no public name
            if self.stop.group and is_ddp and all(save.__module__ == "transformers.trainer" for save in saves):
                self.last = LastStep(self.stop, trainer.model, _collect_random)

    def on_pre_optimizer_step(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Give all ranks the random state that the step ends with: no rank may finish a step that it cannot save."""
        if self.last:
            self.last.share(state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save after the step that all ranks agreed on; at the last one of an epoch, after the epoch's evaluation."""
        if self.last:
            self._tokens = state.num_input_tokens_seen
            self.last.finish(state.global_step)
            if args.eval_strategy == "epoch" and state.epoch == int(state.epoch):
                self.last.forget()  # its evaluation follows, which a resumed training would leave out
        decided = self.stop.poll(state.global_step).stop
        if state.global_step >= state.max_steps:
            decided = self.stop.conclude() or decided
        self._is_stopping = self._is_stopping or decided
        if state.epoch != int(state.epoch) and state.global_step < state.max_steps:
            self.on_epoch_end(args, state, control)

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Leave this step to the older checkpoint for the present: the evaluation has drawn random numbers."""
        if self.last:
            self.last.forget()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Share the last step again if it was evaluated; the loader of an epoch draws random numbers, too."""
        if self.last:
            self.last.renew()

    on_epoch_begin = on_step_begin

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave when all ranks have saved; but a training that its evaluation has just ended goes on to its end."""
        if self._leaves_at_save and (state.global_step >= state.max_steps or not control.should_training_stop):
            if args.world_size > 1:
                dist.barrier()
            self.stop.leave()

    def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """Note that this call of `train` is complete; the script goes on."""
        self.last = None
        if self.stop.stopping.rank.is_main and not self._record.ended:
            self._record.append(ended=[state.global_step, state.max_steps])
        self.stop.end()

    def on_epoch_end(self, args: Any, _: Any, control: Any, **__: Any) -> None:
        """Let Trainer save a whole checkpoint if it is to stop, also against the script's options, after this step."""
        if not self._is_stopping:
            return
        self.stop.check_owner()
        args.save_only_model = False
        if args.save_strategy == "best":
            args.save_strategy = type(args.save_strategy)("steps")
        control.should_save = self._leaves_at_save = True

    def _rescue(self) -> None:
        """Save the last finished step, as the first rank that survives a fault, if this rank still holds it."""
        step, rank = self._trainer.state.global_step, self.stop.stopping.rank
        final = Path(self._record.folder, f"checkpoint-{step}")
        if self.last and not (self._trainer.control.should_evaluate or final.exists()):
            new = final.with_name(f"survivor-{rank.job}-{rank.attempt}-{step}")
            self.last.save(new, final, self._write)

    def _write(self, folder: Path, states: list[Any], buffers: Any) -> None:
        """Write what Trainer's own `_save_checkpoint` writes, without the other ranks, as if this one were rank 0."""
        trainer, args, name = copy.copy(self._trainer), copy.copy(self._trainer.args), str(folder)
        args.distributed_state = SimpleNamespace(process_index=0, local_process_index=0)  # they decide who saves
        trainer.args, trainer.model = args, copy.copy(trainer.model)
        trainer.model.should_save_on_this_rank = lambda _: True  # asked by `save_pretrained`, beside its argument
        trainer._save(name, {**trainer.model.state_dict(), **buffers})  # noqa: SLF001 - no public name writes alone
        if not [*folder.glob("*model*")]:
            raise OSError("this version of transformers has left out the model")
        trainer._save_optimizer_and_scheduler(name)  # noqa: SLF001
        trainer._save_scaler(name)  # noqa: SLF001
        torch.save(self._trainer.args, folder / "training_args.bin")
        for number, state in enumerate(states):
            kind, numbers, *more = state["numpy"]
            state["numpy"] = (kind, np.frombuffer(numbers, np.uint32), *more)
            torch.save(state, folder / f"rng_state_{number}.pth")
        known, callbacks = trainer.state.stateful_callbacks, [*trainer.callback_handler.callbacks, trainer.control]
        stateful = [callback for callback in callbacks if type(callback).__name__ in known]
        changed = {"stateful_callbacks": stateful, "num_input_tokens_seen": self._tokens}
        dataclasses.replace(trainer.state, **changed).save_to_json(str(folder / STATE))


def _collect_random() -> dict[str, Any]:
    """Return this rank's random state, as the files of Trainer have it."""
    return {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}  # noqa: NPY002


class _Record(NamedTuple):
    """Which checkpoints one call of `train` has written, in all attempts of the run; only rank 0 writes it."""

    file: Path
    folder: str
    """The script's `output_dir`."""

    def sort(self, world_size: int) -> tuple[str | None, list[Path]]:
        """Return the newest complete checkpoint of this run, and those that are not complete."""
        world_sizes = {world_size, *(line["world_size"] for line in read_records(self.file) if "world_size" in line)}
        complete: dict[int, Path] = {}
        incomplete = []
        for path in self._own():
            ranks, has_state = list(path.glob("rng_state*.pth")), False
            with contextlib.suppress(OSError, ValueError):
                has_state = bool(json.loads((path / STATE).read_text()))
            if has_state and len(ranks) in world_sizes and all(map(zipfile.is_zipfile, ranks)):
                complete.setdefault(int(path.name.removeprefix("checkpoint-")), path)
            elif ranks or not has_state:  # not by `save_only_model`: a training cannot go on from that
                incomplete.append(path)
        return str(complete[max(complete)]) if complete else None, incomplete

    def _own(self) -> Iterator[Path]:
        """Yield the checkpoints that were not there before this run, and were written before `train` was complete."""
        lines = list(read_records(self.file))
        for folder, before in {line["folder"]: line["found"] for line in reversed(lines)}.items():
            now = _list(folder)
            at_end = lines[-1]["found"] if self.ended else now
            yield from (Path(path) for path in now if now[path] == at_end.get(path) != before.get(path))

    @property
    def ended(self) -> Any:
        """The step at which the training was complete and its last step; None before."""
        return [None, *(line.get("ended") for line in read_records(self.file))][-1]

    def append(self, **values: Any) -> None:
        """Note what lies in the folder now."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        append_record(self.file, {"folder": self.folder, "found": _list(self.folder), **values})


def _list(folder: str) -> dict[str, int]:
    """Return the checkpoints in a folder, with the time at which each was finished, 0 for none."""
    found = {}
    for path in Path(folder).glob("checkpoint-*"):
        state = path / STATE
        if path.name.removeprefix("checkpoint-").isdecimal():
            found[str(path)] = state.stat().st_mtime_ns if state.exists() else 0
    return found
