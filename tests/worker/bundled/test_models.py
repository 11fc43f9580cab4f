"""ResNet-18 is the paper's for images of 32x32 pixels; the decoder attends only to the past."""

import math

import torch
from torch import nn
from torch.nn import functional

from slurmddp.worker.bundled.tasks.classification import resnet18
from slurmddp.worker.bundled.tasks.gpt import Decoder

SHAPE = {"tokens": 50, "context": 12, "layers": 3, "heads": 2, "width": 16}


def test_a_place_sees_those_before_it_and_no_others():
    torch.manual_seed(0)
    model = Decoder(**SHAPE).double()
    tokens = torch.randint(50, (1, 12))
    with torch.no_grad():
        before = model(tokens)
        for place in range(12):
            changed = tokens.clone()
            changed[0, place] = (tokens[0, place] + 1) % 50
            differs = (model(changed) != before).any(dim=2)[0].tolist()
            assert differs == [at >= place for at in range(12)]


def test_the_embedding_is_also_the_last_layer():
    model = Decoder(**SHAPE)
    layer = 4 * 16 * 16 + 4 * 16 + 8 * 16 * 16 + 5 * 16 + 2 * 2 * 16
    assert sum(parameter.numel() for parameter in model.parameters()) == (50 + 12) * 16 + 3 * layer + 2 * 16
    assert not list(model.buffers())
    model(torch.randint(50, (2, 12))).sum().backward()
    assert model.tokens.weight.grad.abs().sum(dim=1).gt(0).all(), "every token is scored at every place"


def test_a_fresh_one_knows_nothing():
    torch.manual_seed(0)
    with torch.no_grad():
        scores = Decoder(**SHAPE)(torch.randint(50, (64, 12)))
    assert scores.shape == (64, 12, 50)
    loss = functional.cross_entropy(scores.flatten(0, 1), torch.randint(50, (64 * 12,)))
    assert abs(float(loss) - math.log(50)) < 0.05


def test_shorter_texts_are_taken():
    assert Decoder(**SHAPE)(torch.randint(50, (1, 5))).shape == (1, 5, 50)


def test_it_has_eighteen_layers_and_their_weights():
    """11,173,962: ImageNet's 11,689,512 less 990 classes, and with 3x3 for 7x7 in the first layer."""
    model = resnet18(10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_689_512 - 990 * 513 - 64 * 3 * (49 - 9)
    convolutions = [part for part in model.modules() if isinstance(part, nn.Conv2d)]
    assert sum(part.kernel_size == (3, 3) for part in convolutions) == 17
    assert sum(part.kernel_size == (1, 1) for part in convolutions) == 3
    assert (convolutions[0].kernel_size, convolutions[0].stride) == ((3, 3), (1, 1))
    assert not any(isinstance(part, nn.MaxPool2d) for part in model.modules())


def test_the_pictures_are_halved_three_times():
    model = resnet18(7).eval()
    with torch.no_grad():
        features = model[:-3](torch.zeros(2, 3, 32, 32))
        assert features.shape == (2, 512, 4, 4)
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_a_block_adds_what_goes_around_it():
    """With its own branch silenced, a block that keeps the size is a ReLU."""
    block = resnet18(10)[4].eval()
    for parameter in block.residual.parameters():
        nn.init.zeros_(parameter)
    inputs = torch.randn(1, 64, 8, 8)
    assert torch.equal(block(inputs), torch.relu(inputs))
