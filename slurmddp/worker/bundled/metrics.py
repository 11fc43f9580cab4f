"""The metrics of a training: the sums of a rank's steps, and what rank 0 writes of them for TensorBoard.

TensorBoard is an optional dependency.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from slurmddp.errors import RankError
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.launch.process import print_line

HINT = "--tensorboard needs the package tensorboard, which is not installed; type: pip install 'slurmddp[tensorboard]'"


class StepMetrics:
    """Sums of an epoch, of the losses and samples; each rank saves its own in the checkpoint."""

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


class Board:
    """The numbers of one run, step by step, in its folder `tensorboard`."""

    def __init__(self, run_dir: RunDir, step: int) -> None:
        """Continue at `step`: TensorBoard hides what an earlier attempt wrote for this and later steps.

        A write error ends the writing, but not the training. Raises RankError when the package is not installed.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            raise RankError(HINT) from error
        self._open: Callable[[], Any] | None = partial(SummaryWriter, str(run_dir.tensorboard), purge_step=step)
        self._writer: Any = None

    def log(self, step: int, values: "Mapping[str, float | None]") -> None:
        """Write the numbers of a step and flush them."""
        if self._open is None:
            return
        try:
            self._writer = self._writer or self._open()
            for name, value in values.items():
                if value is not None:
                    self._writer.add_scalar(name, value, step)
            self._writer.flush()
        except OSError as error:
            self._open = None
            print_line(f"WARNING: the metrics for TensorBoard can no longer be written: {error.strerror or error}")
