"""Reads CIFAR-10's binary version: records of one byte for the class and 3072 for the red, green and blue planes."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from slurmddp.config.datasets import CIFAR_RECORD
from slurmddp.errors import UsageError

CLASSES = 10
SIZE = 32
"""Pixels each way."""


def read_cifar(paths: Iterable[Path]) -> tuple[Tensor, Tensor]:
    """Return the images (samples, 3, 32, 32) and classes (samples) of all files in their order, both uint8.

    Raises UsageError that names the file and what is wrong with it.
    """
    records = torch.cat([_records(path) for path in paths])
    return records[:, 1:].reshape(-1, 3, SIZE, SIZE), records[:, 0].clone()


def _records(path: Path) -> Tensor:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not content or len(content) % CIFAR_RECORD:
        raise UsageError(f"{path} has {len(content)} bytes, which is no number of records of {CIFAR_RECORD}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, CIFAR_RECORD)
    highest = int(records[:, 0].max())
    if highest >= CLASSES:
        raise UsageError(f"{path} has a record of class {highest}; CIFAR-10's classes are 0 to {CLASSES - 1}")
    return records
