"""Sums the losses and the samples of a rank's steps since the last report."""

import time
from typing import Any

import torch
from torch import Tensor


class StepMetrics:
    """Sums of an epoch; each rank saves its own in the checkpoint."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        """Sum over this rank's samples."""
        self.samples = 0
        """Samples of all ranks."""
        self.clear()

    def clear(self) -> None:
        """Start from zero."""
        self.loss.zero_()
        self.samples = 0
        self._began, self._new_samples = time.monotonic(), 0

    def add(self, loss: Tensor, samples: int) -> None:
        """Count a step: the sum of this rank's losses, and the samples of all ranks."""
        self.loss += loss
        self.samples += samples
        self._new_samples += samples

    @property
    def time_s(self) -> float:
        """Seconds since the last report, or since this process began to train."""
        return time.monotonic() - self._began

    @property
    def samples_per_s(self) -> float:
        """Samples of all ranks per second, since the last report or since this process began to train."""
        return self._new_samples / self.time_s

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        return {"loss": self.loss, "samples": self.samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the sums."""
        self.loss.copy_(state_dict["loss"])
        self.samples = state_dict["samples"]
