"""A small language model on the bytes of a text."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from slurmddp.config.datasets import check
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.data.text import Windows, read_text
from slurmddp.worker.bundled.tasks.decoder import Decoder, Shape
from slurmddp.worker.task import Task

SHAPE = Shape(tokens=256, context=128, layers=4, heads=4, width=128)
HELD_OUT = 0.1
"""Part of the text, its end, that is measured on and not trained on."""
WORDS, LETTERS, SYNTHETIC_WORDS = 64, 5, 2**15


class Gpt(Task):
    """Predict the next byte with a small decoder, without buffers: any split of ranks agrees."""

    train: Windows
    test: Windows

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        path = check(options)
        text = made_up(options.seed) if path is None else read_text(path)
        held_out = int(len(text) * HELD_OUT)
        self.train, self.test = (Windows(part, SHAPE.context) for part in (text[:-held_out], text[-held_out:]))

    def model(self) -> nn.Module:
        """Return a fresh decoder."""
        return Decoder(SHAPE)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy of each window's bytes, in nats."""
        return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return each window's bits a byte; 8 is a model that knows nothing."""
        return {"bits_per_byte": self.losses(outputs, targets) / math.log(2)}


def made_up(seed: int) -> Tensor:
    """Return random words of a small vocabulary, as uint8; log2(64) / 6 = 1 bit a byte is the best there is."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(ord("a"), ord("z") + 1, (WORDS, LETTERS + 1), generator=generator, dtype=torch.uint8)
    words[:, -1] = ord(" ")
    return words[torch.randint(WORDS, (SYNTHETIC_WORDS,), generator=generator)].flatten()
