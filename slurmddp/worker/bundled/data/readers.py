"""Reads the data sets' file formats: IDX (MNIST), CIFAR-10's binary version, text. A file may be packed as `.gz`."""

import gzip
import math
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from slurmddp.config.datasets import CIFAR_RECORD
from slurmddp.errors import UsageError

UNSIGNED_BYTE = 8
"""IDX's code for the one type that MNIST uses."""
CIFAR_CLASSES = 10
CIFAR_SIZE = 32
"""Pixels in each direction."""


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Return the values of an IDX file as a uint8 tensor with that number of dimensions.

    The format: two zero bytes, the type, the number of sizes, the sizes, the values. Raises UsageError that names the
    file and its fault.
    """
    content = _read_bytes(path)
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise UsageError(f"{path} ends within its header ({len(content)} bytes)")
    if content[:4] != bytes((0, 0, UNSIGNED_BYTE, dimensions)):
        raise UsageError(
            f"{path} starts with {content[:4].hex(' ')}; an IDX file of bytes with {dimensions} dimensions starts "
            f"with 00 00 08 {dimensions:02x}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise UsageError(
            f"{path} holds {len(content) - start} values, but its sizes {shape} ask for {math.prod(shape)}"
        )
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].reshape(shape)


def read_pair(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Return images (samples, height, width) and labels (samples) of two IDX files, both uint8.

    Raises UsageError when there are no images, or a different number of labels.
    """
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(classes):
        raise UsageError(f"{images} holds {len(pixels)} images, but {labels} holds {len(classes)} labels")
    if pixels.numel() == 0:
        raise UsageError(f"{images} holds no pixels: its sizes are {tuple(pixels.shape)}")
    return pixels, classes


def read_cifar(paths: Iterable[Path]) -> tuple[Tensor, Tensor]:
    """Return images (samples, 3, 32, 32) and classes (samples) of all files in their order, both uint8.

    A record has one byte for the class, and 3072 for the red, green and blue planes; `find_data` has checked that the
    records are whole. Raises UsageError that names the file and its fault.
    """
    parts = []
    for path in paths:
        part = torch.frombuffer(bytearray(_read_bytes(path)), dtype=torch.uint8).reshape(-1, CIFAR_RECORD)
        highest = int(part[:, 0].max())
        if highest >= CIFAR_CLASSES:
            raise UsageError(f"{path} has a record of class {highest}; CIFAR-10's classes are 0 to {CIFAR_CLASSES - 1}")
        parts.append(part)
    records = torch.cat(parts)
    return records[:, 1:].reshape(-1, 3, CIFAR_SIZE, CIFAR_SIZE), records[:, 0].clone()


def read_text(path: Path) -> Tensor:
    """Return a file's bytes as uint8; it is not empty. Raises UsageError when it cannot be read."""
    return torch.frombuffer(bytearray(_read_bytes(path)), dtype=torch.uint8)


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
