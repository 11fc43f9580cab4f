"""Feeds a rank the samples of each step: straight from memory, or through torch's DataLoader."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from slurmddp.runtime.checkpoint.sampler import Sampler
from slurmddp.worker.task import Batched, Examples

Batch = tuple[Tensor, Tensor]


def training_batches(
    examples: Examples, sampler: Sampler, batch_size: int, *, workers: int, device: torch.device
) -> Iterator[Batch]:
    """Yield this rank's batches on the device, from the sampler's position on, without end.

    A step of the sampler gives `sampler.batch_size / batch_size` of them.
    """
    seed = torch.initial_seed() + sampler.consumed  # each rank's own, and another one after a resume
    return _batches(examples, _places(sampler, batch_size), workers=workers, device=device, seed=seed)


def measuring_batches(
    examples: Examples, batch_size: int, *, share: tuple[int, int], workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, targets and weights of a rank's share of all samples; `share` is the rank and their number.

    Every rank has the same number of batches of the same size. A sample that is there to fill one up weighs 0.
    """
    rank, ranks = share
    places = torch.arange(rank, -(-len(examples) // ranks) * ranks, ranks)
    weights = torch.split(places < len(examples), batch_size)
    parts = torch.split(places.clamp(max=len(examples) - 1), batch_size)
    for (inputs, targets), weight in zip(
        _batches(examples, iter(parts), workers=workers, device=device), weights, strict=True
    ):
        yield inputs, targets, weight.to(device)


def _places(sampler: Sampler, batch_size: int) -> Iterator[Tensor]:
    first = sampler.consumed
    while True:
        yield from torch.split(sampler.indices(first), batch_size)
        first += sampler.global_batch


def _batches(
    examples: Examples, parts: Iterator[Tensor], *, workers: int, device: torch.device, seed: int = 0
) -> Iterator[Batch]:
    if isinstance(examples, Batched):
        return (examples.batch(part.to(device)) for part in parts)
    loader: DataLoader[Batch] = DataLoader(
        examples,  # type: ignore[arg-type]  # torch asks for its own class, and takes any
        batch_sampler=(part.tolist() for part in parts),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(seed),  # which is not to be drawn from the rank's own generator
    )
    return ((inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)) for inputs, targets in loader)
