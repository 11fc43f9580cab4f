"""Yields the batches of a rank, directly from memory or through torch's DataLoader."""

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
    """Yield this rank's batches on the device, beginning at the sampler's position, without end.

    A step of the sampler gives `sampler.batch_size / batch_size` of them.
    """
    seed = torch.initial_seed() + sampler.consumed  # differs between ranks, and after a resume
    return _batches(examples, _split_steps(sampler, batch_size), workers=workers, device=device, seed=seed)


def test_batches(
    examples: Examples, batch_size: int, *, share: tuple[int, int], workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, targets and weights of a rank's share of all samples; `share` is (rank, world size).

    Every rank has the same number of batches of the same size. A sample that only fills a batch has weight 0.
    """
    rank, ranks = share
    positions = torch.arange(rank, -(-len(examples) // ranks) * ranks, ranks)
    weights = torch.split(positions < len(examples), batch_size)
    parts = torch.split(positions.clamp(max=len(examples) - 1), batch_size)
    for (inputs, targets), weight in zip(
        _batches(examples, iter(parts), workers=workers, device=device), weights, strict=True
    ):
        yield inputs, targets, weight.to(device)


def _split_steps(sampler: Sampler, batch_size: int) -> Iterator[Tensor]:
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
        examples,  # type: ignore[arg-type]  # torch declares its own class, but accepts any
        batch_sampler=(part.tolist() for part in parts),
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(seed),  # keeps the rank's default generator unchanged
    )
    return ((inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)) for inputs, targets in loader)
