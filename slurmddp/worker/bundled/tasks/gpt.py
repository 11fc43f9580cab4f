"""A small language model on the bytes of a text."""

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.data.readers import read_text
from slurmddp.worker.bundled.models import Decoder, DecoderShape
from slurmddp.worker.task import Task

SHAPE = DecoderShape(tokens=256, context=128, layers=4, heads=4, width=128)
HELD_OUT = 0.1
"""The share of the text, at its end, that is the test set."""
WORDS, LETTERS, SYNTHETIC_WORDS = 64, 5, 2**15


class Windows:
    """Consecutive windows of a text: `context` bytes, and for each of them the byte that follows.

    Each byte of the text is predicted once, except those after the last whole window.
    """

    def __init__(self, text: Tensor, context: int) -> None:
        self.text, self.context = text, context
        self._places = torch.arange(context + 1, device=text.device)

    def __len__(self) -> int:
        """Return the number of whole windows."""
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one window (context) and the byte after each of its bytes (context), both int64."""
        inputs, targets = self.batch(torch.tensor([index], device=self.text.device))
        return inputs[0], targets[0]

    def to(self, device: torch.device) -> Self:
        """Return the same windows with their text on a device."""
        return type(self)(self.text.to(device), self.context)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the windows of these indices (samples, context) and the byte after each byte, both int64."""
        bytes_ = self.text[indices.unsqueeze(1) * self.context + self._places].long()
        return bytes_[:, :-1], bytes_[:, 1:]


class Gpt(Task):
    """Predict the next byte with a small decoder. Without buffers, any number of ranks gives the same result."""

    train: Windows
    test: Windows

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        files = find_data(options)
        text = synthesize(options.seed) if files is None else read_text(*files)
        held_out = int(len(text) * HELD_OUT)
        self.train, self.test = (Windows(part, SHAPE.context) for part in (text[:-held_out], text[-held_out:]))

    def model(self) -> nn.Module:
        """Return a fresh decoder."""
        return Decoder(SHAPE)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy of each window's bytes, in nats."""
        return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the bits per byte of each window; an untrained model has about 8."""
        return {"bits_per_byte": self.losses(outputs, targets) / math.log(2)}


def synthesize(seed: int) -> Tensor:
    """Return random words of a small vocabulary as uint8; at best a model reaches log2(64) / 6 = 1 bit per byte."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(ord("a"), ord("z") + 1, (WORDS, LETTERS + 1), generator=generator, dtype=torch.uint8)
    words[:, -1] = ord(" ")
    return words[torch.randint(WORDS, (SYNTHETIC_WORDS,), generator=generator)].flatten()
