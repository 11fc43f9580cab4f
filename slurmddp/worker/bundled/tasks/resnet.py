"""ResNet-18 for images of 32x32 pixels (He et al., Deep Residual Learning, 2015; the first layer as for CIFAR-10)."""

import torch
from torch import Tensor, nn

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels, and the stride that enters them; each stage has two blocks."""


class Block(nn.Module):
    """Two 3x3 convolutions, and a way around them."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outward),
            nn.ReLU(),
            nn.Conv2d(outward, outward, 3, padding=1, bias=False),
            nn.BatchNorm2d(outward),
        )
        self.around = nn.Identity() if inward == outward else _narrow(inward, outward, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features (samples, outward, height / stride, width / stride)."""
        return torch.relu(self.residual(inputs) + self.around(inputs))


def _narrow(inward: int, outward: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward))


def resnet18(classes: int) -> nn.Module:
    """Return a network from images (samples, 3, height, width) to scores (samples, classes).

    Its first convolution is 3x3, and there is no pooling before the blocks: 32 pixels are too few for ImageNet's.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    inward = 64
    for channels, stride in STAGES:
        layers += [Block(inward, channels, stride), Block(channels, channels, 1)]
        inward = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, classes))
