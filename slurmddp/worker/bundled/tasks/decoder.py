"""A decoder of the GPT-2 kind: pre-norm, causal attention, learned positions, the embedding also as the last layer."""

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

INIT = 0.02
"""Standard deviation of fresh weights (Radford et al., 2019)."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large a decoder is."""

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
    """Return a fresh vector for each number."""
    table = nn.Embedding(numbers, width)
    nn.init.normal_(table.weight, std=INIT)
    return table


class Attention(nn.Module):
    """Each place looks at those before it and at itself."""

    def __init__(self, width: int, heads: int, closing_std: float) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = linear(width, 3 * width, INIT), linear(width, width, closing_std)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, places, width)."""
        parts = self.inward(inputs).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outward(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # a module's call is untyped


class Layer(nn.Module):
    """Attention, then two linear layers at each place; each is added to what enters it."""

    def __init__(self, width: int, heads: int, closing_std: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, closing_std))
        wide, narrow = linear(width, 4 * width, INIT), linear(4 * width, width, closing_std)
        self.places = nn.Sequential(nn.LayerNorm(width), wide, nn.GELU(), narrow)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, places, width)."""
        hidden = inputs + self.attention(inputs)
        return hidden + self.places(hidden)  # type: ignore[no-any-return]  # a module's call is untyped


class Decoder(nn.Module):
    """Score the next token at each place.

    The layers that end a branch begin smaller, so that the sum of all branches does not grow with their number.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        closing_std = INIT / math.sqrt(2 * shape.layers)
        self.tokens, self.places = embedding(shape.tokens, shape.width), embedding(shape.context, shape.width)
        self.layers = nn.Sequential(*(Layer(shape.width, shape.heads, closing_std) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores (samples, places, tokens) from tokens (samples, places), at most `context` places."""
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.layers(hidden)), self.tokens.weight)
