"""The order of the samples, and how far the training has come in it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler as TorchSampler

from slurmddp.errors import RankError
from slurmddp.runtime import session

_PRIME = 1_000_003
"""Parts the seeds of neighbouring runs from those of neighbouring epochs."""


class Sampler(TorchSampler[list[int]]):
    """This rank's batches, one epoch after the other without end: a `batch_sampler` for torch's DataLoader.

    The samples form one stream, epoch after epoch, each epoch a permutation of all of them that depends on seed and
    epoch alone. A step takes the next `batch_size * world_size` of the stream, so that every batch is full, the last
    one of an epoch reaches into the next, and nothing is repeated or left out. The position is the number of
    samples that finished steps have consumed, whatever a loader has fetched ahead; any world size can go on from it.
    """

    def __init__(self, samples: int, batch_size: int, *, seed: int = 0, shuffle: bool = True) -> None:
        """Make the order of `samples` samples, `batch_size` of them a rank and step.

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
        """Samples of the stream that the finished steps of all ranks took."""
        self._rank, self._world_size = ours.rank, ours.world_size
        self._iterated = False
        self._orders: dict[int, torch.Tensor] = {}

    @property
    def global_batch(self) -> int:
        """Samples that a step takes on all ranks together."""
        return self.batch_size * self._world_size

    @property
    def epoch(self) -> int:
        """Epochs that were finished, from 0."""
        return self.consumed // self.samples

    def steps_until(self, epochs: int) -> int:
        """Return how many steps from here finish that many epochs; the last one may reach into the next."""
        return max(0, -(-(epochs * self.samples - self.consumed) // self.global_batch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's indices for each step from the position on, without end."""
        self._iterated = True
        first = self.consumed
        while True:
            yield self.indices(first).tolist()
            first += self.global_batch

    def places(self, first: int) -> torch.Tensor:
        """Return this rank's places in the stream, int64 of shape [batch_size], for the step that begins at `first`."""
        return torch.arange(first + self._rank, first + self.global_batch, self._world_size)

    def indices(self, first: int) -> torch.Tensor:
        """Return the samples at those places, int64 of shape [batch_size]."""
        places = self.places(first)
        parts = []
        for epoch in range(int(places[0]) // self.samples, int(places[-1]) // self.samples + 1):
            within = places - epoch * self.samples
            parts.append(self._order(epoch)[within[(within >= 0) & (within < self.samples)]])
        return torch.cat(parts)

    def advance(self) -> None:
        """Count a finished step; the loop of `Checkpointer.steps` does."""
        self.consumed += self.global_batch

    def state_dict(self) -> dict[str, Any]:
        """Return the position: seed, samples of an epoch, samples consumed."""
        return {"seed": self.seed, "samples": self.samples, "shuffle": self.shuffle, "consumed": self.consumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position.

        Raises RankError when it is one in another order, or when a loader has already begun to take batches.
        """
        for name in ("seed", "samples", "shuffle"):
            if state[name] != getattr(self, name):
                raise RankError(
                    f"the checkpoint's order has {name} {state[name]}, this run's {getattr(self, name)}; "
                    "give the same, or another --name"
                )
        if self._iterated:
            raise RankError(
                "the Sampler was iterated before the Checkpointer restored it; make the loader's iterator after"
            )
        self.consumed = state["consumed"]

    def _order(self, epoch: int) -> torch.Tensor:
        if epoch not in self._orders:
            self._orders = {number: order for number, order in self._orders.items() if number == epoch - 1}
            self._orders[epoch] = self._permutation(epoch)
        return self._orders[epoch]

    def _permutation(self, epoch: int) -> torch.Tensor:
        if not self.shuffle:
            return torch.arange(self.samples)
        seed = (self.seed * _PRIME + epoch) % 2**63
        return torch.randperm(self.samples, generator=torch.Generator().manual_seed(seed))
