"""What a rank's steps gave since the last report."""

import time
from typing import Any

import torch
from torch import Tensor


class Tally:
    """Sums of an epoch; a part of the checkpoint, each rank's own."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        """Sum over this rank's samples."""
        self.samples = 0
        """Samples of all ranks."""
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.loss.zero_()
        self.samples = 0
        self._began, self._samples_here = time.monotonic(), 0

    def add(self, loss: Tensor, samples: int) -> None:
        """Count a step: the sum of this rank's losses, and the samples of all ranks."""
        self.loss += loss
        self.samples += samples
        self._samples_here += samples

    @property
    def time_s(self) -> float:
        """Seconds since the last report, or since this process began to train."""
        return time.monotonic() - self._began

    @property
    def samples_per_s(self) -> float:
        """Samples of all ranks a second, by the steps of this process."""
        return self._samples_here / self.time_s

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        return {"loss": self.loss, "samples": self.samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from sums."""
        self.loss.copy_(state_dict["loss"])
        self.samples = state_dict["samples"]
