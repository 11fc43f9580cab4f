"""Reads IDX files, the format of MNIST: two zero bytes, the type, the number of sizes, the sizes, the values."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch

from slurmddp.errors import UsageError

UNSIGNED_BYTE = 8
"""IDX's code for the one type that MNIST uses."""


def read_idx(path: Path, dimensions: int) -> torch.Tensor:
    """Return a file's values as a uint8 tensor of so many dimensions; `.gz` is unpacked.

    Raises UsageError that names the file and what is wrong with it.
    """
    content = _content(path)
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


def read_pair(images: Path, labels: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (samples, height, width) and labels (samples), both uint8.

    Raises UsageError when there is none, or not one label for each image.
    """
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    if len(pixels) != len(classes):
        raise UsageError(f"{images} holds {len(pixels)} images, but {labels} holds {len(classes)} labels")
    if pixels.numel() == 0:
        raise UsageError(f"{images} holds no pixels: its sizes are {tuple(pixels.shape)}")
    return pixels, classes


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
