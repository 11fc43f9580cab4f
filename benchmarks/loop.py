"""What a step of the bundled worker costs, against a hand-written DDP loop, Lightning's Trainer and Accelerate.

    python benchmarks/loop.py

The same small classifier on the same samples in memory, on the CPU. Lightning's `fit` runs from end to end; at every
twentieth batch that it asks for, the other loops take as many steps, in the same processes and in changing order, so
that all see the same machine.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

import lightning.pytorch as lightning
import torch
from accelerate import Accelerator
from blocks import block_s, in_ms, run_ranks, say_block
from rows import Row, print_rows
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import slurmddp
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.runtime.session import Session
from slurmddp.worker.bundled.train import Training
from slurmddp.worker.task import InMemory, Task

BLOCKS, STEPS = 80, 20
"""Of each loop, and in each block."""
WIDTH, BATCH, SAMPLES = 512, 64, 2**14
PEERS = ("a hand-written loop", "Lightning", "Accelerate")
WANTED = "at most 1.01 of a hand-written loop; at most 1 of Lightning; at most 1 of Accelerate"

Batch = tuple[Tensor, Tensor]


def network() -> nn.Module:
    layers = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def descent(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class Classes(Task):
    """What the worker trains."""

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        generator = torch.Generator().manual_seed(options.seed)
        inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
        self.train = InMemory(inputs, torch.randint(10, (SAMPLES,), generator=generator))

    def model(self) -> nn.Module:
        """Return what the other loops have."""
        return network()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def endless(samples: InMemory, rank: int, ranks: int) -> Iterator[Batch]:
    """Yield a rank's batches, epoch after epoch, each in an order of its own."""
    for epoch in count():
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for indices in order[rank::ranks].split(BATCH):
            yield samples.inputs[indices], samples.targets[indices]


def by_hand(batches: Iterable[Batch]) -> Iterator[None]:
    """Take a block of steps each time the next is asked for."""
    model = DistributedDataParallel(network())
    optimizer = descent(model)
    while True:
        for inputs, targets in islice(batches, STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        yield


def by_worker(ddp: Session, task: Classes) -> Iterator[None]:
    """As `slurmddp run --task` does; no checkpoint is due; a line an epoch is said."""
    training = Training(ddp, task.options, task)
    for step in training.steps():
        if (step + 1) % STEPS == 0:
            yield


def by_accelerate(batches: Iterable[Batch]) -> Iterator[None]:
    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, descent(model))
    while True:
        for inputs, targets in islice(batches, STEPS):
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
                optimizer.step()
        yield


class Classifier(lightning.LightningModule):
    """The same for Lightning's Trainer."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch: Batch) -> Tensor:
        """Return the loss; the Trainer does the rest."""
        inputs, targets = batch
        return nn.functional.cross_entropy(self.network(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what the other loops have."""
        return descent(self)


class Batches:
    """One epoch for Lightning; calls `interlude` with its own seconds a step after each block."""

    def __init__(self, batches: Iterator[Batch], interlude: Callable[[float], None]) -> None:
        self._batches, self._interlude = batches, interlude

    def __len__(self) -> int:
        """Return the batches of all blocks, the first of which is thrown away, and one that ends the last."""
        return (BLOCKS + 1) * STEPS + 1

    def __iter__(self) -> Iterator[Batch]:
        """Yield the same batch again and again."""
        begin = time.perf_counter()
        for number in range(len(self)):
            if number and number % STEPS == 0:
                self._interlude((time.perf_counter() - begin) / STEPS)
                begin = time.perf_counter()
            yield next(self._batches)


def measure() -> None:
    """Say, for each block, the seconds of a step in each loop."""
    options = WorkerOptions(batch_size=BATCH, lr=0.01, epochs=2**20)
    with slurmddp.init("cpu") as ddp:
        task = Classes(options)
        batches = endless(task.train, ddp.rank, ddp.world_size)
        loops = [by_worker(ddp, task), by_hand(batches), by_accelerate(batches)]

        turns = itertools.cycle(itertools.permutations(range(len(loops))))

        def interlude(lightning_s: float) -> None:
            seconds = {number: block_s(loops[number], STEPS) for number in next(turns)}
            say_block(ddp, seconds[0], seconds[1], lightning_s, seconds[2])

        trainer = lightning.Trainer(
            accelerator="cpu",
            strategy=lightning.strategies.DDPStrategy(),
            devices=int(os.environ["LOCAL_WORLD_SIZE"]),
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Classifier(), Batches(batches, interlude))


def rows() -> list[Row]:
    ours, *others = map(in_ms, run_ranks(__file__))
    peers = dict(zip(PEERS, others, strict=True))
    return [Row(name="a step of the bundled worker, 2 ranks", unit="ms", ours=ours, peers=peers, wanted=WANTED)]


if __name__ == "__main__":
    measure() if sys.argv[1:2] == ["rank"] else print_rows(rows())
