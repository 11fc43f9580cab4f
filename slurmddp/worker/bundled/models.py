"""The models of the bundled tasks: ResNet-18 for images of 32x32 pixels, and a small decoder of the GPT-2 kind."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of each stage; a stage has two blocks."""


INIT = 0.02
"""Standard deviation of fresh weights (Radford et al., 2019)."""


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outward),
            nn.ReLU(),
            nn.Conv2d(outward, outward, 3, padding=1, bias=False),
            nn.BatchNorm2d(outward),
        )
        self.around = nn.Identity() if inward == outward else _projection(inward, outward, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, outward, height / stride, width / stride)."""
        return torch.relu(self.residual(inputs) + self.around(inputs))


def _projection(inward: int, outward: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward))


def resnet18(classes: int) -> nn.Module:
    """Return ResNet-18 (He et al., 2015): images (samples, 3, height, width) to scores (samples, classes).

    As in the paper's networks for CIFAR-10, the first convolution is 3x3 and no pooling comes before the blocks.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inward = 64
    for channels, stride in STAGES:
        layers += [ResidualBlock(inward, channels, stride), ResidualBlock(channels, channels, 1)]
        inward = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, classes))


@dataclass(frozen=True, kw_only=True)
class DecoderShape:
    """The sizes of a decoder."""

    tokens: int
    context: int
    layers: int
    heads: int
    width: int


def linear(inward: int, outward: int, std: float) -> nn.Linear:
    """Return a fresh linear layer."""
    layer = nn.Linear(inward, outward)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


def embedding(numbers: int, width: int) -> nn.Embedding:
    """Return a fresh embedding table."""
    table = nn.Embedding(numbers, width)
    nn.init.normal_(table.weight, std=INIT)
    return table


class Attention(nn.Module):
    """Causal self-attention: each position attends to itself and to those before it."""

    def __init__(self, width: int, heads: int, closing_std: float) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = linear(width, 3 * width, INIT), linear(width, width, closing_std)

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
        wide, narrow = linear(width, 4 * width, INIT), linear(4 * width, width, closing_std)
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

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        closing_std = INIT / math.sqrt(2 * shape.layers)
        self.tokens, self.places = embedding(shape.tokens, shape.width), embedding(shape.context, shape.width)
        self.layers = nn.Sequential(*(Layer(shape.width, shape.heads, closing_std) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores (samples, positions, tokens) from tokens (samples, positions), at most `context` positions."""
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.layers(hidden)), self.tokens.weight)
