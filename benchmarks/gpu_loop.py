"""A step of the bundled worker on one GPU against a hand-written loop with the same model, in turn; and its MFU.

python benchmarks/gpu_loop.py [--cpu]

Both have the samples on the GPU, DistributedDataParallel and the same optimizer. MFU: the operations of the model's
products, counted by torch, over those of plain products of matrices that this run measures.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from blocks import block_s, in_ms
from gpu_device import Bench, Line, print_part
from gpu_trainings import Blocks, make_long, options_for, train
from rows import Row, in_turn, spread
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

import slurmddp
from slurmddp.errors import UsageError
from slurmddp.runtime.session import Session
from slurmddp.worker.bundled.model_setup import make_optimizer
from slurmddp.worker.task import Task

HAND = "a hand-written loop"
WANTED = f"at most 1.03 of {HAND}"
LARGER = {"tokens": 256, "context": 128, "layers": 12, "heads": 12, "width": 768}
"""As GPT-2's smallest (Radford et al., 2019), on bytes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training to measure."""

    name: str
    task: str
    batch: int
    times: int
    """How often its synthetic data is repeated."""
    shape: dict[str, int] | None = None
    """Of a decoder that replaces the task's model."""
    steps: int
    """In a block."""


def cases(bench: Bench) -> tuple[Case, ...]:
    steps = bench.pick(20, 2)
    gpt = Case(name="gpt", task="gpt", batch=bench.pick(64, 2), times=bench.pick(32, 1), steps=steps)
    cifar = Case(name="cifar10", task="cifar10", batch=bench.pick(256, 2), times=bench.pick(32, 1), steps=steps)
    if not bench.on_gpu:
        resnet = Case(name="resnet50", task="torchvision:resnet50", batch=2, times=1, steps=1)
        return gpt, cifar, resnet
    larger = Case(name="gpt, 12 layers of 768", task="gpt", batch=256, times=32, shape=LARGER, steps=10)
    resnet = Case(name="resnet50", task="torchvision:resnet50", batch=128, times=64, steps=10)
    return gpt, larger, cifar, resnet


def make(case: Case, bench: Bench) -> Task:
    options = options_for(case.task, case.batch, precision=bench.pick("bf16", "fp32"))
    return make_long(options, case.times, case.shape)


class ByHand:
    """What a user would write."""

    def __init__(self, task: Task, bench: Bench) -> None:
        self._task, self._bench = task, bench
        self._samples = task.train.to(bench.device)  # type: ignore[attr-defined]  # all these tasks have theirs in memory
        self.module = task.model().to(bench.device)

    def blocks(self, steps: int) -> Iterator[None]:
        """Take a block each time the next is asked for, and wait for its end."""
        on = self._bench.on_gpu
        model = DistributedDataParallel(self.module, device_ids=[self._bench.device.index] if on else None)
        optimizer = make_optimizer(model.parameters(), self._task.options)
        batches = self.batches()
        while True:
            for _ in range(steps):
                inputs, targets = next(batches)
                optimizer.zero_grad()
                self.loss(model, inputs, targets).backward()
                optimizer.step()
            self._bench.finish()
            yield

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of a random order, epoch after epoch; what is left over at the end is not used."""
        size, batch = len(self._samples), self._task.options.batch_size
        while True:
            order = torch.randperm(size, device=self._bench.device)
            for first in range(0, size - batch + 1, batch):
                yield self._samples.batch(order[first : first + batch])

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        with torch.autocast(self._bench.device.type, torch.bfloat16, enabled=self._bench.on_gpu):
            outputs = model(self._task.transform(inputs))
            return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())

    def flops(self) -> int:
        """Return the operations of a step's forward and backward pass; of the plain model, before `blocks`."""
        inputs, targets = next(self.batches())
        with FlopCounterMode(display=False) as counter:
            self.loss(self.module, inputs, targets).backward()
        self.module.zero_grad()
        return int(counter.get_total_flops())


def measure(ddp: Session, case: Case, bench: Bench, rate: float) -> Iterator[Line]:
    task = make(case, bench)
    by_hand = ByHand(task, bench)
    flops = by_hand.flops()
    loops = {
        "": Blocks(bench, case.steps).of_worker(train(ddp, task)),
        HAND: by_hand.blocks(case.steps),
    }
    measures = {name: lambda loop=loop: block_s(loop, case.steps) for name, loop in loops.items()}
    taken = in_turn(measures, bench.pick(24, 2), warm_up=True)
    name = f"a step of {case.name}, batch {case.batch}, {task.options.precision}, one rank"
    wanted = bench.pick(WANTED, "")
    yield Row(name=name, unit="ms", ours=in_ms(taken[""]), peers={HAND: in_ms(taken[HAND])}, wanted=wanted)
    step_s = spread(taken[""]).median
    yield (
        f"  {case.batch / step_s:,.0f} samples/s; {flops / 1e9:,.3g} GFLOP a step, "
        f"MFU {flops / step_s / rate:.2%} of {rate / 1e12:.3g} TFLOP/s, this run's own products"
    )


def lines(bench: Bench) -> Iterator[Line]:
    with slurmddp.init("cuda" if bench.on_gpu else "cpu") as ddp:
        rate = bench.matmul_rate(bench.pick(torch.bfloat16, torch.float32))
        for case in cases(bench):
            try:
                yield from measure(ddp, case, bench, rate)
            except UsageError as error:
                yield f"{case.name}: skipped: {error}"


if __name__ == "__main__":
    print_part(lines)
