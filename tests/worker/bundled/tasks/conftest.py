"""Real pictures and a real text in the formats that the tasks read; nothing is downloaded."""

import pydoc_data.topics
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from slurmddp.config.datasets import CIFAR_NAMES, find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.data.readers import read_pair

CPU_TORCHVISION = Path(__file__).parents[3] / "programs" / "cpu_torchvision"


@pytest.fixture(scope="session")
def torchvision_path() -> Iterator[str]:
    """Make torchvision importable here; return what PYTHONPATH must hold for other processes."""
    vision = Path(sys.prefix) / "vision"
    if not vision.is_dir():
        pytest.skip(f"torchvision is not in {vision}; `make test` puts it there")
    sys.path.append(str(vision))
    kept = runpy.run_path(str(CPU_TORCHVISION / "sitecustomize.py"))
    yield f"{CPU_TORCHVISION}:{vision}"
    del kept
    sys.path.remove(str(vision))


def read_digits(part: str) -> tuple[Tensor, Tensor]:
    """Return photographed handwriting, 8x8 pixels in grey, and what was written."""
    files = find_data(WorkerOptions())
    return read_pair(*(files[:2] if part == "train" else files[2:]))


def write_cifar(path: Path, images: Tensor, classes: Tensor) -> None:
    """Write grey images of 8x8 in CIFAR's format: each pixel becomes 4x4, alike in red, green and blue."""
    large = images.repeat_interleave(4, dim=1).repeat_interleave(4, dim=2)
    planes = large.flatten(1).repeat(1, 3)
    path.write_bytes(torch.cat((classes.unsqueeze(1), planes), dim=1).numpy().tobytes())


def only(among: tuple[int, ...], images: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    wanted = torch.isin(classes, torch.tensor(among, dtype=torch.uint8))
    return images[wanted], classes[wanted]


@pytest.fixture
def digits():
    """Return the function that reads them."""
    return read_digits


@pytest.fixture
def digits_as_cifar(tmp_path):
    """Return a function that writes so many of some digits in CIFAR's format, and returns their folder."""

    def write(train: int, test: int, among: tuple[int, ...] = tuple(range(10))) -> Path:
        folder = tmp_path / "digits-in-cifars-format"
        folder.mkdir()
        images, classes = only(among, *read_digits("train"))
        for number, name in enumerate(CIFAR_NAMES[:-1]):
            some = slice(number * train // 5, (number + 1) * train // 5)
            write_cifar(folder / name, images[some], classes[some])
        images, classes = only(among, *read_digits("test"))
        write_cifar(folder / CIFAR_NAMES[-1], images[:test], classes[:test])
        return folder

    return write


@pytest.fixture
def english(tmp_path):
    """Return a file of Python's own documentation."""
    path = tmp_path / "topics.txt"
    path.write_text("\n".join(pydoc_data.topics.topics.values()), encoding="utf-8")
    return path
