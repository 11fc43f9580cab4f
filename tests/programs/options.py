"""Trains by the bundled worker with one set of options after the other, in one group of ranks.

    options.py FOLDER CASE...      a case is a name, `=`, and the worker's words

Each case is trained once in one go, and once with a crash in the middle, after which it goes on from its last
checkpoint. Rank 0 leaves NAME.pt for each: the losses a step, both models, and whether all ranks have the same one.
"""

import dataclasses
import os
import shlex
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import slurmddp
from slurmddp.config.worker_options import parse
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.checkpoint.training_state import unwrap
from slurmddp.runtime.session import Session
from slurmddp.worker.bundled.tasks import make_task
from slurmddp.worker.bundled.train import Training


class CrashError(Exception):
    """Ends a training in mid-step."""


class Watched(Training):
    """A training that notes its losses, and crashes when told to."""

    crash_at = -1

    def _step(self, batches, first, after):
        if self.run.step == self.crash_at:
            raise CrashError
        loss = super()._step(batches, first, after)
        self.losses.append(float(loss))
        return loss


def train(ddp, options, folder: Path, crash_at: int = -1) -> Watched:
    Session.current = dataclasses.replace(ddp, run_dir=RunDir(folder), folders=set())
    training = Watched(Session.current, options, make_task(options))
    training.losses, training.crash_at = [], crash_at
    try:
        for _ in training.steps():
            pass
    except CrashError:
        dist.barrier()
    return training


def agree(training) -> bool:
    mine = torch.cat([value.flatten().double() for value in unwrap(training.model).state_dict().values()])
    largest, smallest = mine.clone(), mine.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.all_reduce(smallest, dist.ReduceOp.MIN)
    return bool(torch.equal(largest, smallest))


def main(folder: Path, cases: list[str]) -> None:
    with slurmddp.init("cpu") as ddp:
        for case in cases:
            name, _, words = case.partition("=")
            options = parse([*shlex.split(words), "--checkpoint-every-steps=5"])
            calm = train(ddp, options, folder / name / "calm")
            steps = len(calm.losses)
            train(ddp, options, folder / name / "crashed", crash_at=steps * 2 // 3)
            again = train(ddp, options, folder / name / "crashed")
            same = options.strategy == "fsdp" or agree(calm)
            models = [slurmddp.full_state_dict(training.model) for training in (calm, again)]
            if ddp.is_main:
                found = {"losses": calm.losses, "calm": models[0], "again": models[1], "taken": len(again.losses)}
                torch.save({**found, "agree": same}, folder / f"{name}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    os._exit(0)  # threads of the crashed trainings may be in torch's code, and would abort an interpreter that ends
