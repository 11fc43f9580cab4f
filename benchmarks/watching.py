"""What `Checkpointer.steps` costs a training step: the same steps in its loop and in a plain `for`.

    python benchmarks/watching.py

A small DDP training on the CPU, blocks of steps in one loop and in the other, in the same processes, the first of
each two blocks in turn of the one kind and of the other, so that both see the same machine. Notices are heard and the
ranks agree as in any training; no checkpoint is due.
"""

import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import islice

import torch
from blocks import in_ms, run_ranks, say_block
from rows import Row, print_rows
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp

BLOCKS, STEPS = 200, 20
"""Of each loop, and in each block."""
WIDTH, BATCH = 384, 32


class Training:
    """A small multilayer perceptron, its optimizer, and one batch."""

    def __init__(self) -> None:
        layers = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.model = DistributedDataParallel(nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch = torch.randn(BATCH, WIDTH)

    def step_s(self, steps: Iterable[int]) -> float:
        """Take the steps, and return the seconds of one in the mean."""
        begin = time.perf_counter()
        for _ in steps:
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()
        return (time.perf_counter() - begin) / STEPS


def measure(folder: str) -> None:
    """Say the seconds of each two blocks: of a step in `run.steps`, and in a plain loop."""
    with slurmddp.init("cpu") as ddp:
        training = Training()
        run = slurmddp.Checkpointer(model=training.model, optimizer=training.optimizer, folder=folder)
        watched = run.steps((BLOCKS + 2) * STEPS)
        loops = {"plain": lambda: range(STEPS), "watched": lambda: islice(watched, STEPS)}
        for block in range(BLOCKS + 1):
            took_s = {name: training.step_s(loops[name]()) for name in sorted(loops, reverse=block % 2 == 1)}
            say_block(ddp, took_s["watched"], took_s["plain"])


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        watched, plain = map(in_ms, run_ranks(__file__, folder))
    peers, wanted = {"a plain loop": plain}, "at most 1.02 of a plain loop"
    return [Row(name="a step in Checkpointer.steps, 2 ranks", unit="ms", ours=watched, peers=peers, wanted=wanted)]


if __name__ == "__main__":
    measure(sys.argv[2]) if sys.argv[1:2] == ["rank"] else print_rows(rows())
