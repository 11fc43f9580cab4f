"""A text as bytes, and the windows of it that a language model learns from."""

from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from slurmddp.errors import UsageError


def read_text(path: Path) -> Tensor:
    """Return a file's bytes (bytes) as uint8. Raises UsageError when it cannot be read or is empty."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise UsageError(f"{path} is empty")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


class Windows:
    """Neighbouring windows of a text: `context` bytes, and for each of them the one behind it.

    Each byte of the text is predicted once, but for what is left behind the last whole window.
    """

    def __init__(self, text: Tensor, context: int) -> None:
        self.text, self.context = text, context
        self._places = torch.arange(context + 1, device=text.device)

    def __len__(self) -> int:
        """Return the number of whole windows."""
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one window (context) and what is behind each of its bytes (context), both int64."""
        inputs, targets = self.batch(torch.tensor([index], device=self.text.device))
        return inputs[0], targets[0]

    def to(self, device: torch.device) -> Self:
        """Return the same windows, their text on a device."""
        return type(self)(self.text.to(device), self.context)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the windows of these numbers (samples, context) and what is behind each byte, both int64."""
        bytes_ = self.text[indices.unsqueeze(1) * self.context + self._places].long()
        return bytes_[:, :-1], bytes_[:, 1:]
