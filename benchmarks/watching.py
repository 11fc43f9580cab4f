"""What `Checkpointer.steps` costs a training step: the same steps in its loop and in a plain `for`.

    python benchmarks/watching.py [RANKS]

A small DDP training on the CPU, blocks of steps in one loop and in the other, in the same processes, the first of
each two blocks in turn of the one kind and of the other, so that both see the same machine. Prints the median of the
ratios of neighbouring blocks, and the middle half of them. Notices are heard and the ranks agree as in any training;
no checkpoint is due. Wanted: at most 1.02.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import islice

import torch
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
    """Print, on rank 0, a line for each two blocks: seconds of a step in `run.steps`, and in a plain loop."""
    with slurmddp.init("cpu") as ddp:
        training = Training()
        run = slurmddp.Checkpointer(model=training.model, optimizer=training.optimizer, folder=folder)
        watched = run.steps((BLOCKS + 1) * STEPS)
        loops = {"plain": lambda: range(STEPS), "watched": lambda: islice(watched, STEPS)}
        training.step_s(loops["watched"]())
        for block in range(BLOCKS):
            took_s = {name: training.step_s(loops[name]()) for name in sorted(loops, reverse=block % 2 == 1)}
            ddp.print("BLOCKS", took_s["watched"], took_s["plain"])


def main(ranks: str = "2") -> None:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", __file__]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*words, "rank", folder], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    blocks = [tuple(map(float, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("BLOCKS")]
    ratios = [watched / plain for watched, plain in blocks]
    low, middle, high = statistics.quantiles(ratios)
    watched_s, plain_s = map(statistics.median, zip(*blocks, strict=True))
    print(
        f"a step in run.steps, {ranks} ranks: {middle:.3f} times one in a plain loop, {low:.3f} to {high:.3f} "
        f"({watched_s * 1000:.2f} ms against {plain_s * 1000:.2f} ms)"
    )


if __name__ == "__main__":
    measure(sys.argv[2]) if sys.argv[1:2] == ["rank"] else main(*sys.argv[1:])
