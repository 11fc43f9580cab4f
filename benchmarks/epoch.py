"""An epoch on Fashion-MNIST: the bundled worker's input pipeline against torch's DataLoader, with the same model.

    python benchmarks/epoch.py

All train in the same rank on the same images, an epoch of each in turn. The DataLoader has its defaults, with no loader
processes and with two; its dataset is torchvision's for these files, with the transform of torch's quickstart
(https://docs.pytorch.org/tutorials/beginner/basics/quickstart_tutorial.html). Beside it stand the least that a dataset
can do, a tensor of bytes of which an image is normalized when it is asked for, and a TensorDataset of images that were
normalized once, as the worker's are. The
model is the linear classifier of torch's tutorial of nn, and there is one rank: what a larger model or an all-reduce
takes is the same on all sides, and most of an epoch.
"""

import gzip
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from blocks import block_s, run_ranks, say_block
from programs import ROOT
from rows import Row, print_rows
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

import slurmddp
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.runtime.session import Session
from slurmddp.worker.bundled.model_setup import make_optimizer
from slurmddp.worker.bundled.tasks.classification import Mnist
from slurmddp.worker.bundled.train import Training
from slurmddp.worker.task import InMemory, Task

FASHION = "/usr/share/datasets/fashion-mnist"
EPOCHS = 5
LOADER, PROCESSES = "DataLoader of torchvision's dataset", "the same with 2 processes"
BYTES, TENSORS = "DataLoader of a tensor of bytes", "DataLoader of a TensorDataset"
VISION = [ROOT / "tests" / "programs" / "cpu_torchvision", Path(sys.prefix) / "vision"]
"""`make test` puts torchvision there, apart from the other packages."""


class LinearClassifier(Mnist):
    """The images of Fashion-MNIST, and a linear layer of their pixels."""

    def model(self) -> nn.Module:
        """Return a linear layer, a score for each class."""
        return nn.Sequential(nn.Flatten(), nn.Linear(self.train.inputs[0].numel(), 10))


class Images(Dataset[tuple[Tensor, Tensor]]):
    """The images as the files have them, each normalized when it is asked for."""

    def __init__(self, images: InMemory) -> None:
        low, high = images.inputs.min(), images.inputs.max()
        self.bytes, self.targets = (
            ((images.inputs - low) * (255 / (high - low))).round().to(torch.uint8),
            images.targets,
        )
        self.mean, self.deviation = self.bytes.float().mean(), self.bytes.float().std()

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.bytes)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return an image and its class."""
        return (self.bytes[index].float() - self.mean) / self.deviation, self.targets[index]


def by_worker(ddp: Session, task: Task) -> Iterator[None]:
    """Take an epoch each time the next is asked for."""
    training = Training(ddp, task.options, task)
    an_epoch = training.sampler.steps_until(1)
    for step in training.steps():
        if (step + 1) % an_epoch == 0:
            yield


def by_loader(ddp: Session, task: Task, images: Dataset[Any], processes: int = 0) -> Iterator[None]:
    """Take an epoch each time the next is asked for."""
    sampler = DistributedSampler(images, ddp.world_size, ddp.rank)
    loader = DataLoader(images, batch_size=task.options.batch_size, sampler=sampler, num_workers=processes)
    model = DistributedDataParallel(task.model())
    optimizer = make_optimizer(model.parameters(), task.options)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        yield


def measure() -> None:
    """Say, for each round, the seconds of an epoch in each loop."""
    options = WorkerOptions(task="mnist", data=FASHION, batch_size=64, epochs=EPOCHS + 2)
    with slurmddp.init("cpu") as ddp:
        task = LinearClassifier(options)
        task.test = None
        files, tensors = read_by_torchvision(), TensorDataset(task.train.inputs, task.train.targets)
        loops = [
            by_worker(ddp, task),
            by_loader(ddp, task, files),
            by_loader(ddp, task, files, 2),
            by_loader(ddp, task, Images(task.train)),
            by_loader(ddp, task, tensors),
        ]
        for _ in range(EPOCHS + 1):
            say_block(ddp, *(block_s(loop, 1) for loop in loops))


def read_by_torchvision() -> Dataset[Any]:
    """Return torchvision's dataset of the same files, which it wants unpacked and in a folder of its own layout."""
    from torchvision import datasets, transforms  # noqa: PLC0415 the ranks alone find it

    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "FashionMNIST", "raw")
        raw.mkdir(parents=True)
        for packed in Path(FASHION).glob("*.gz"):
            (raw / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
        return datasets.FashionMNIST(folder, train=True, transform=transforms.ToTensor())


def rows() -> list[Row]:
    ours, *theirs = run_ranks(__file__, ranks=1, path=VISION)
    name = "an epoch of Fashion-MNIST, linear classifier, batches of 64, 1 rank"
    peers = dict(zip((LOADER, PROCESSES, BYTES, TENSORS), theirs, strict=True))
    wanted = f"at most 0.5 of {LOADER}; at most 0.5 of {PROCESSES}"
    return [Row(name=name, unit="s", ours=ours, peers=peers, wanted=wanted)]


if __name__ == "__main__":
    measure() if sys.argv[1:2] == ["rank"] else print_rows(rows())
