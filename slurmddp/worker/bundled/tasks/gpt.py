"""A small language model, a decoder of the GPT-2 kind, on the bytes of a text."""

import math
from typing import Final, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from slurmddp.config.datasets import find_data
from slurmddp.config.worker_options import WorkerOptions
from slurmddp.worker.bundled.data.readers import read_text
from slurmddp.worker.task import InMemory, Task

INIT = 0.02
"""Standard deviation of fresh weights (Radford et al., 2019)."""
HELD_OUT = 0.1
"""The share of the text, at its end, that is the test set."""
WORDS, LETTERS, SYNTHETIC_WORDS = 64, 5, 2**15
CONTEXT = 128
Fresh = TypeVar("Fresh", nn.Linear, nn.Embedding)
SHAPE: Final = {"tokens": 256, "context": CONTEXT, "layers": 4, "heads": 4, "width": 128}


def fresh(layer: Fresh, std: float = INIT) -> Fresh:
    """Return a new layer with fresh weights, and without a bias as yet."""
    nn.init.normal_(layer.weight, std=std)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)
    return layer


class Attention(nn.Module):
    """Causal self-attention: each position attends to itself and to those before it."""

    def __init__(self, width: int, heads: int, closing_std: float) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = fresh(nn.Linear(width, 3 * width)), fresh(nn.Linear(width, width), closing_std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, positions, width)."""
        parts = self.inward(inputs).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outward(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # a module's call is untyped


class Layer(nn.Module):
    """Attention, then two linear layers at each position, each with a residual connection."""

    def __init__(self, width: int, heads: int, closing_std: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, closing_std))
        wide, narrow = fresh(nn.Linear(width, 4 * width)), fresh(nn.Linear(4 * width, width), closing_std)
        self.places = nn.Sequential(nn.LayerNorm(width), wide, nn.GELU(), narrow)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, positions, width)."""
        hidden = inputs + self.attention(inputs)
        return hidden + self.places(hidden)  # type: ignore[no-any-return]  # a module's call is untyped


class Decoder(nn.Module):
    """Score the next token at each position: pre-norm, learned positions, the embedding also as the last layer.

    The last layers of the branches get smaller initial weights, so that the sum over all branches does not grow with
    their number.
    """

    def __init__(self, *, tokens: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        closing_std = INIT / math.sqrt(2 * layers)
        self.tokens, self.places = fresh(nn.Embedding(tokens, width)), fresh(nn.Embedding(context, width))
        self.layers = nn.Sequential(*(Layer(width, heads, closing_std) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores (samples, positions, tokens) from tokens (samples, positions), at most `context` positions."""
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.layers(hidden)), self.tokens.weight)


class Windows(InMemory):
    """Consecutive windows of a text: `context` bytes, and for each of them the byte that follows.

    Each byte of the text is predicted once, except those after the last whole window.
    """

    @classmethod
    def of(cls, text: Tensor, context: int) -> "Windows":
        """Return the whole windows of a text of bytes."""
        whole = (len(text) - 1) // context * context
        return cls(text[:whole].view(-1, context), text[1 : whole + 1].view(-1, context))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the windows of these indices (samples, context) and the byte after each byte, both int64."""
        inputs, targets = super().batch(indices)
        return inputs.long(), targets.long()


class Gpt(Task):
    """Predict the next byte with a small decoder. Without buffers, any number of ranks gives the same result."""

    def __init__(self, options: WorkerOptions) -> None:
        super().__init__(options)
        files = find_data(options)
        text = synthesize(options.seed) if files is None else read_text(*files)
        held_out = int(len(text) * HELD_OUT)
        self.train, self.test = (Windows.of(part, CONTEXT) for part in (text[:-held_out], text[-held_out:]))

    def model(self) -> nn.Module:
        """Return a fresh decoder."""
        return Decoder(**SHAPE)

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
