"""The order of the samples, and the position of the training in it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler as TorchSampler

from slurmddp.errors import RankError
from slurmddp.runtime import session

_PRIME = 1_000_003
"""Keeps the seeds of neighbouring runs apart from those of neighbouring epochs."""


class Sampler(TorchSampler[list[int]]):
    """This rank's batches, epoch after epoch without end: a `batch_sampler` for torch's DataLoader.

    The samples form one stream. Each epoch is a permutation of all samples that depends only on the seed and on the
    epoch. A step takes the next `batch_size * world_size` samples of the stream. So every batch is full, the last batch
    of an epoch may reach into the next epoch, and no sample is repeated or left out. The position is the number of
    samples that finished steps have consumed, not those that a loader has prefetched. Any world size can continue
    from it.
    """

    def __init__(self, samples: int, batch_size: int, *, seed: int = 0, shuffle: bool = True) -> None:
        """Order `samples` samples; each rank takes `batch_size` of them in each step.

        Raises RankError when either is not at least 1.
        """
        if samples < 1 or batch_size < 1:
            raise RankError(f"Sampler: {samples} samples in batches of {batch_size}; both must be at least 1")
        ours = session.current()
        self.samples = samples
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.consumed = 0
        """Samples that the finished steps of all ranks took from the stream; `Checkpointer.steps` counts them."""
        self._rank, self._world_size = ours.rank, ours.world_size
        self.global_batch = batch_size * ours.world_size
        """Samples that all ranks together take in one step."""
        self._iterated = False
        self._orders: dict[int, torch.Tensor] = {}

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return self.consumed // self.samples

    def steps_until(self, epochs: int) -> int:
        """Return how many more steps finish that many epochs; the last step may reach into the next epoch."""
        return max(0, -(-(epochs * self.samples - self.consumed) // self.global_batch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's indices for each step, beginning at the position, without end."""
        self._iterated = True
        first = self.consumed
        while True:
            yield self.indices(first).tolist()
            first += self.global_batch

    def positions(self, first: int) -> torch.Tensor:
        """Return this rank's positions in the stream, int64 [batch_size], for the step that begins at `first`."""
        return torch.arange(first + self._rank, first + self.global_batch, self._world_size)

    def indices(self, first: int) -> torch.Tensor:
        """Return the samples at those positions, int64 [batch_size]."""
        epochs = range(first // self.samples, (first + self.global_batch - 1) // self.samples + 1)
        orders = [self._order(epoch) for epoch in epochs]
        stream, begin = orders[0] if len(orders) == 1 else torch.cat(orders), first % self.samples
        return stream[begin + self._rank : begin + self.global_batch : self._world_size]

    def state_dict(self) -> dict[str, Any]:
        """Return the position: seed, samples of an epoch, samples consumed."""
        return {"seed": self.seed, "samples": self.samples, "shuffle": self.shuffle, "consumed": self.consumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position.

        Raises RankError when the position belongs to another order, or when a loader has already taken batches.
        """
        for name in ("seed", "samples", "shuffle"):
            if state[name] != getattr(self, name):
                raise RankError(
                    f"the checkpoint's order has {name} {state[name]}, this run's {getattr(self, name)}; "
                    "give the same, or another --name"
                )
        self.check_unused()
        self.consumed = state["consumed"]

    def check_unused(self) -> None:
        """Raise RankError when a loader has already taken batches: no step would see them."""
        if self._iterated:
            raise RankError(
                "the Sampler was iterated before the Checkpointer was made; make the loader's iterator after it"
            )

    def _order(self, epoch: int) -> torch.Tensor:
        if epoch not in self._orders:
            self._orders = {number: order for number, order in self._orders.items() if number == epoch - 1}
            generator = torch.Generator().manual_seed((self.seed * _PRIME + epoch) % 2**63)
            order = torch.randperm(self.samples, generator=generator) if self.shuffle else torch.arange(self.samples)
            self._orders[epoch] = order
        return self._orders[epoch]
