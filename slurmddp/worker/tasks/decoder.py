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


class Attention(nn.Module):
    """Each place looks at those before it and at itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, places, width)."""
        parts = self.inward(inputs).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outward(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # a module's call is untyped


class Layer(nn.Module):
    """Attention, then two linear layers at each place; each is added to what enters it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.places = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, places, width)."""
        hidden = inputs + self.attention(inputs)
        return hidden + self.places(hidden)  # type: ignore[no-any-return]  # a module's call is untyped


class Decoder(nn.Module):
    """Score the next token at each place."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(shape.tokens, shape.width), nn.Embedding(shape.context, shape.width)
        self.layers = nn.Sequential(*(Layer(shape.width, shape.heads) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self._draw(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores (samples, places, tokens) from tokens (samples, places), at most `context` places."""
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.layers(hidden)), self.tokens.weight)

    def _draw(self, shape: Shape) -> None:
        """Draw the weights; those that end a branch are smaller, so that their sum is not larger for more layers."""
        last = {id(layer.attention[1].outward) for layer in self.layers} | {id(layer.places[3]) for layer in self.layers}
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=INIT / math.sqrt(2 * shape.layers) if id(part) in last else INIT)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)
