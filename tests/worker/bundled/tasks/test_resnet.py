"""The network is ResNet-18 as the paper has it for images of 32x32 pixels."""

import torch
from torch import nn

from slurmddp.worker.bundled.tasks.resnet import resnet18


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
