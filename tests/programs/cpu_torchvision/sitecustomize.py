"""Lets torchvision be imported beside a torch without CUDA: PyPI's wheel of it cannot load its own operators there.

Nothing that is tested uses those operators; without a declaration torchvision does not even import its models.
"""

import importlib.util
from pathlib import Path

import torch

found = importlib.util.find_spec("torchvision")
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
try:
    if found and found.origin:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
except OSError:
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
