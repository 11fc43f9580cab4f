"""What it costs a training step to keep what a survivor of a fault needs: the same steps with it and without.

    python benchmarks/survivors.py

Two ranks on the CPU, as on two nodes: each also sends its own state to the other. Blocks of steps in the same
processes, the first of each two in turn of the one kind and of the other.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from blocks import in_ms, run_ranks, say_block
from rows import Row, print_rows
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp
from slurmddp.runtime.checkpoint.store import Store, ensure_identity
from slurmddp.runtime.checkpoint.survivors import Survivor
from slurmddp.runtime.checkpoint.training_state import TrainingState

SIZES = {"10 M": (1280, 40, 10), "100 M": (4096, 12, 3)}
"""Of the model: the width of its six layers, the pairs of blocks, and the steps of each block."""
BATCH = 64


def measure(folder: str, name: str) -> None:
    """Say the seconds of each two blocks: of a step with what a survivor needs, and without."""
    width, pairs, steps = SIZES[name]
    os.environ |= {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with slurmddp.init("cpu") as ddp:
        torch.manual_seed(ddp.rank)
        layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())]
        model = DistributedDataParallel(nn.Sequential(*layers, nn.Dropout(0.1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        batch = torch.randn(BATCH, width)
        training = TrainingState(model=model, shared={"optimizer": optimizer}, own={}, device=ddp.device)
        store = Store(Path(folder), identity=ensure_identity(Path(folder)), keep=1, check_owner=lambda: None, say=print)
        survivor = Survivor(training, ddp, store)
        for pair in range(pairs + 1):
            took_s = {}
            for is_on in (pair % 2 == 0, pair % 2 == 1):
                if is_on:
                    survivor.begin(0)
                begin = time.perf_counter()
                for step in range(steps):
                    optimizer.zero_grad()
                    model(batch).square().mean().backward()
                    optimizer.step()
                    survivor.keep(step + 1)
                took_s[is_on] = (time.perf_counter() - begin) / steps
                survivor.end()
            say_block(ddp, took_s[True], took_s[False])


def rows() -> list[Row]:
    """Return one row for each size of the model."""
    found = []
    for name in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            ours, without = map(in_ms, run_ranks(__file__, folder, name))
        title = f"a step with the state for survivors, {name} parameters, 2 nodes"
        wanted = "at most 1.005 of keeping nothing"
        found.append(Row(name=title, unit="ms", ours=ours, peers={"keeping nothing": without}, wanted=wanted))
    return found


if __name__ == "__main__":
    measure(*sys.argv[2:]) if sys.argv[1:2] == ["rank"] else print_rows(rows())
