"""Writes the metrics of a training for TensorBoard, on rank 0. TensorBoard is an optional dependency."""

from collections.abc import Mapping
from typing import Any

from slurmddp.errors import RankError
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.launch.output import print_line

HINT = "--tensorboard needs the package tensorboard, which is not installed; type: pip install 'slurmddp[tensorboard]'"


class Board:
    """The numbers of one run, step by step, in its folder `tensorboard`."""

    def __init__(self, run_dir: RunDir, step: int) -> None:
        """Continue at `step`: TensorBoard hides what an earlier attempt wrote for this and later steps.

        A write error ends the writing, but not the training. Raises RankError when the package is not installed.
        """
        make = _summary_writer()
        self._writer: Any = None
        try:
            self._writer = make(str(run_dir.tensorboard), purge_step=step)
        except OSError as error:
            self._give_up(error)

    def log(self, step: int, values: Mapping[str, float | None]) -> None:
        """Write the numbers of a step and flush them."""
        if self._writer is None:
            return
        try:
            for name, value in values.items():
                if value is not None:
                    self._writer.add_scalar(name, value, step)
            self._writer.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        print_line(f"WARNING: the metrics for TensorBoard can no longer be written: {error.strerror or error}")


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise RankError(HINT) from error
    return SummaryWriter
