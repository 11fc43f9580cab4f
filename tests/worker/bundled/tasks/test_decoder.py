"""The decoder sees the past alone, and knows nothing at first."""

import math

import torch
from torch.nn import functional

from slurmddp.worker.bundled.tasks.decoder import Decoder, Shape

SHAPE = Shape(tokens=50, context=12, layers=3, heads=2, width=16)


def test_a_place_sees_those_before_it_and_no_others():
    torch.manual_seed(0)
    model = Decoder(SHAPE).double()
    tokens = torch.randint(50, (1, 12))
    with torch.no_grad():
        before = model(tokens)
        for place in range(12):
            changed = tokens.clone()
            changed[0, place] = (tokens[0, place] + 1) % 50
            differs = (model(changed) != before).any(dim=2)[0].tolist()
            assert differs == [at >= place for at in range(12)]


def test_the_embedding_is_also_the_last_layer():
    model = Decoder(SHAPE)
    layer = 4 * 16 * 16 + 4 * 16 + 8 * 16 * 16 + 5 * 16 + 2 * 2 * 16
    assert sum(parameter.numel() for parameter in model.parameters()) == (50 + 12) * 16 + 3 * layer + 2 * 16
    assert not list(model.buffers())
    model(torch.randint(50, (2, 12))).sum().backward()
    assert model.tokens.weight.grad.abs().sum(dim=1).gt(0).all(), "every token is scored at every place"


def test_a_fresh_one_knows_nothing():
    torch.manual_seed(0)
    with torch.no_grad():
        scores = Decoder(SHAPE)(torch.randint(50, (64, 12)))
    assert scores.shape == (64, 12, 50)
    loss = functional.cross_entropy(scores.flatten(0, 1), torch.randint(50, (64 * 12,)))
    assert abs(float(loss) - math.log(50)) < 0.05


def test_shorter_texts_are_taken():
    assert Decoder(SHAPE)(torch.randint(50, (1, 5))).shape == (1, 5, 50)
