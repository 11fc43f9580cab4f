"""The models of the bundled tasks: ResNet-18 for images of 32x32 pixels, and a small decoder of the GPT-2 kind."""

import math
from dataclasses import dataclass
from typing import Any

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


class Decoder(nn.Module):
    """Score the next token at each position: pre-norm, learned positions, the embedding also as the last layer.

    The last layers of the branches get smaller initial weights, so that the sum over all branches does not grow with
    their number.
    """

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        width = shape.width
        self.tokens, self.places = nn.Embedding(shape.tokens, width), nn.Embedding(shape.context, width)
        options: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        layers = (nn.TransformerEncoderLayer(width, shape.heads, 4 * width, **options) for _ in range(shape.layers))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                closes = name.endswith(("out_proj.weight", "linear2.weight"))
                nn.init.normal_(parameter, std=INIT / math.sqrt(2 * shape.layers) if closes else INIT)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores (samples, positions, tokens) from tokens (samples, positions), at most `context` positions."""
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        past = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], hidden.device, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=past, is_causal=True)
        return functional.linear(self.norm(hidden), self.tokens.weight)
