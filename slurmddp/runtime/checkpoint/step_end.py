"""The tensors of a training at the end of a step, and whether they are still the same. No files.

The host runs ahead of a GPU: what it has queued behind an all-reduce that waits for a lost rank has changed nothing,
though `_version` says so. So an event is recorded at the end of each step, and one before the next optimizer: while
the first is reached and the second is not, the device holds that step. It is read in a stream of torch's pool, which
waits for no other (cudaStreamNonBlocking, c10/cuda/CUDAStream.cpp), without allocating pinned memory, or the device's,
which may wait for all kernels ("Implicit Synchronization" in NVIDIA's CUDA C++ Programming Guide).
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]
Answer = Callable[[], bool]


class Gpu:
    """What a GPU answers. It was never run on one."""

    def __init__(self, device: torch.device, parameters: Tensors) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
        self._first = [one.detach().as_strided((1,), (1,)).view(torch.uint8) for one in parameters if one.numel()]

    def mark(self) -> Answer:
        """Return what tells whether all that was queued until now is done."""
        event = torch.cuda.current_stream(self._device).record_event()
        return lambda: bool(event.query())

    def keep_first_bytes(self) -> Answer:
        """Return what tells, within `reading`, whether the first bytes of each parameter are still the same."""
        kept = torch.cat(self._first)
        return lambda: torch.cat([one.cpu() for one in self._first]).equal(kept.cpu())

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Let `.cpu()` wait for nothing that is queued."""
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield


class StepEnd:
    """The end of the step that is just over."""

    def __init__(self, step: int, tensors: Tensors, others: Any = None, gpu: "Gpu | None" = None) -> None:
        self.step, self.others, self._gpu, self._traces = step, others, gpu, traces_of(tensors)
        self._has_same_bytes: Answer = gpu.keep_first_bytes() if gpu else lambda: True
        self.is_reached: Answer = gpu.mark() if gpu else lambda: True
        self._is_left: Answer = lambda: traces_of(tensors) != self._traces

    def leave(self) -> None:
        """Note that the next optimizer begins, on a GPU behind all that is queued."""
        self._is_left = self._gpu.mark() if self._gpu and not self._is_left() else lambda: True

    def is_held(self) -> bool:
        """Return whether the tensors are those of this end, also behind what was read before this call."""
        return not self._is_left() and self.is_reached() and self._has_same_bytes()


def traces_of(tensors: Tensors) -> list[tuple[int, Any]]:
    """Return of each tensor how often it was changed, as autograd counts it, and its first bytes, on a GPU their place.

    What is written through `.data`, as an average of the weights is for an evaluation, autograd does not count.
    """
    return [(one._version, _first_bytes(one)) for one in tensors]  # noqa: SLF001 - of autograd, which counts


def _first_bytes(tensor: torch.Tensor) -> "bytes | int":
    if not tensor.is_cpu:
        return tensor.data_ptr()
    return ctypes.string_at(tensor.data_ptr(), min(tensor.nbytes, 8)) if tensor.layout is torch.strided else b""
