"""Trains a bundled task with DistributedDataParallel; a batch of all ranks is the same set of samples on any number."""

import io
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

from slurmddp.errors import RankError
from slurmddp.rundir import write_whole
from slurmddp.runtime.environment import Rank
from slurmddp.runtime.events import Epoch, write_event
from slurmddp.runtime.group import choose_device, process_group
from slurmddp.worker.options import WorkerOptions
from slurmddp.worker.tasks import Task, make_task

MOMENTUM = 0.9
TEST_BATCH = 512


@dataclass(frozen=True)
class _Pass:
    """What a pass over the training data gave, over all ranks."""

    loss: float
    steps: int
    time_s: float


def train(rank: Rank, options: WorkerOptions) -> None:
    """Train as one rank; rank 0 prints, writes the events and saves the model."""
    task = make_task(options)
    device = choose_device(options.device, rank)
    if not rank.is_main:
        print(f"rank {rank.rank} of {rank.world_size} on {rank.host}, device {device}", flush=True)  # noqa: T201
    with process_group(rank, device):
        _say_header(rank, options, task, device)
        torch.manual_seed(options.seed)
        model = _distributed(task.model().to(device), device)
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=MOMENTUM)
        data = (task.train[0].to(device), task.train[1].to(device))
        sampler = _sampler(rank, options, len(data[0]))
        step = 0
        for epoch in range(1, options.epochs + 1):
            sampler.set_epoch(epoch)
            done = _train_pass(task, model, optimizer, data, sampler, options.batch_size)
            step += done.steps
            accuracy = _accuracy(rank, task, model, device)
            _say_epoch(rank, options, epoch, step, done, accuracy, len(data[0]))
        _finish(rank, task, model.module)


def _distributed(model: nn.Module, device: torch.device) -> DistributedDataParallel:
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def _sampler(rank: Rank, options: WorkerOptions, samples: int) -> "DistributedSampler[tuple[Tensor, ...]]":
    return DistributedSampler(
        TensorDataset(torch.empty(samples)), rank.world_size, rank.rank, shuffle=True, seed=options.seed
    )


def _train_pass(
    task: Task,
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    data: tuple[Tensor, Tensor],
    sampler: "DistributedSampler[tuple[Tensor, ...]]",
    batch_size: int,
) -> _Pass:
    """Take every sample once; the gradient of a step is that of the mean over all ranks' samples.

    The sampler repeats samples to give every rank as many; a repeated one weighs nothing.
    """
    started = time.monotonic()
    model.train()  # type: ignore[no-untyped-call]  # torch leaves DDP's untyped
    inputs, targets = data
    total = torch.zeros((), dtype=torch.float64, device=inputs.device)
    order = torch.tensor(list(sampler), device=inputs.device)
    places = torch.arange(len(order), device=inputs.device) * sampler.num_replicas + sampler.rank
    batches = list(zip(torch.split(order, batch_size), torch.split(places, batch_size), strict=True))
    for number, (batch, place) in enumerate(batches):
        first = number * batch_size * sampler.num_replicas
        samples = min(batch_size * sampler.num_replicas, len(inputs) - first)
        losses = task.losses(model(inputs[batch]), targets[batch]) * (place < len(inputs))
        optimizer.zero_grad()
        torch.autograd.backward(losses.sum() * (sampler.num_replicas / samples))
        optimizer.step()
        total += losses.detach().sum()
    dist.all_reduce(total)
    return _Pass(float(total) / len(inputs), len(batches), time.monotonic() - started)


@torch.no_grad()
def _accuracy(rank: Rank, task: Task, model: DistributedDataParallel, device: torch.device) -> float | None:
    """Return the fraction of the test samples classified rightly; each is counted by one rank."""
    inputs, targets = (part[rank.rank :: rank.world_size].to(device) for part in task.test)
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    for some, wanted in zip(torch.split(inputs, TEST_BATCH), torch.split(targets, TEST_BATCH), strict=True):
        correct = task.correct(model.module(some), wanted)
        if correct is None:
            return None
        right += correct.sum()
    dist.all_reduce(right)
    return int(right) / len(task.test[0])


def _check_all_reduce(rank: Rank, device: torch.device) -> int:
    """Return the sum of rank + 1 over all ranks.

    Raises RankError when it is not what it must be.
    """
    total = torch.tensor(rank.rank + 1, device=device)
    dist.all_reduce(total)
    wanted = rank.world_size * (rank.world_size + 1) // 2
    if int(total) != wanted:
        raise RankError(f"the all-reduce of rank + 1 over {rank.world_size} ranks gave {int(total)}, not {wanted}")
    return wanted


def _say_header(rank: Rank, options: WorkerOptions, task: Task, device: torch.device) -> None:
    total = _check_all_reduce(rank, device)
    nodes = f"{rank.nodes} node{'s' if rank.nodes > 1 else ''}"
    _say(
        rank,
        f"world size {rank.world_size} on {nodes} ({rank.launcher}), all-reduce of rank + 1: {total}\n"
        f"device {device.type}, backend {dist.get_backend()}\n"
        f"task {options.task}, data {options.data}: {len(task.train[0])} training samples, "
        f"{len(task.test[0])} test samples, {options.epochs} epochs\n"
        f"global batch {options.batch_size * rank.world_size} ({options.batch_size} a rank), "
        f"lr {options.lr}, seed {options.seed}",
    )


def _say_epoch(
    rank: Rank, options: WorkerOptions, epoch: int, step: int, done: _Pass, accuracy: float | None, samples: int
) -> None:
    speed = samples / done.time_s
    right = "" if accuracy is None else f"  accuracy {accuracy:.4f}"
    _say(
        rank,
        f"epoch {epoch}/{options.epochs}  loss {done.loss:.6f}{right}  {speed:.0f} samples/s  {done.time_s:.2f} s",
    )
    event = Epoch(epoch=epoch, step=step, loss=done.loss, accuracy=accuracy, samples_per_s=speed, lr=options.lr)
    write_event(rank, event)


def _finish(rank: Rank, task: Task, model: nn.Module) -> None:
    if not rank.is_main:
        return
    report = task.report(model)
    if report:
        _say(rank, report)
    if rank.run_dir is None:
        _say(rank, "the model is not saved: this process was started by hand, without a run folder")
        return
    content = io.BytesIO()
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, content)
    write_whole(rank.run_dir.model, content.getvalue())
    _say(rank, f"model saved to {rank.run_dir.model}")


def _say(rank: Rank, text: str) -> None:
    if rank.is_main:
        print(text, flush=True)  # noqa: T201 - rank 0 is the console of the job
