"""What a GPU does, by NVIDIA's management library (nvml.h): no package and no CUDA context is needed."""

from __future__ import annotations
import ctypes
import sys
from contextlib import suppress
from typing import Final, NamedTuple

_UUID_BYTES: Final = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE of nvml.h."""


class GpuUse(NamedTuple):
    """What a GPU does."""

    busy: float
    """The share of the time in which a kernel ran (nvmlUtilization_t), on average over the measurements."""
    memory_bytes: int
    """Used now, by all processes."""
    total_bytes: int
    watts: float
    """Drawn now."""


def list_uuids() -> list[str]:
    """Return the UUIDs of the GPUs that this process may open; empty without a driver.

    A CUDA context would cost seconds and memory, and the program could no longer change CUDA_VISIBLE_DEVICES.
    """
    nvml = _open_library()
    if nvml is None:
        return []
    count, device, text = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
    found: list[str] = []
    try:
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
                nvml.nvmlDeviceGetUUID(device, text, _UUID_BYTES)
                found.append(text.value.decode())
    finally:
        nvml.nvmlShutdown()
    return found


class Gpu:
    """One GPU, measured time and again until the process ends."""

    def __init__(self, uuid: str) -> None:
        """Find it by its UUID, `GPU-1f2e...`. Raises OSError without a driver, or for one that is not there."""
        nvml, self._device = _open_library(), ctypes.c_void_p()
        if nvml is None or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._device)):
            raise OSError(f"NVML has no GPU {uuid}")
        self._nvml, self._busy, self._times = nvml, 0.0, 0

    def measure(self) -> GpuUse:
        """Return what it does; values that it does not tell, as a MIG instance, are 0."""
        shares, sizes, milliwatts = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)(), ctypes.c_uint()
        self._nvml.nvmlDeviceGetUtilizationRates(self._device, shares)  # of the GPU, of its memory's bandwidth
        self._nvml.nvmlDeviceGetMemoryInfo(self._device, sizes)  # total, free, used
        self._nvml.nvmlDeviceGetPowerUsage(self._device, ctypes.byref(milliwatts))
        self._busy, self._times = self._busy + shares[0] / 100, self._times + 1
        return GpuUse(self._busy / self._times, sizes[2], sizes[0], milliwatts.value / 1000)


def find_own_gpu() -> Gpu | None:
    """Return the GPU on which this process has most memory, by a torch that uses CUDA; None if it is not known.

    Each thread has a current device of its own, so that is not asked. Torch knows UUIDs from 2.4 on.
    """
    cuda = sys.modules["torch.cuda"]
    most = max(range(cuda.device_count()), key=cuda.memory_reserved)
    with suppress(OSError, AttributeError):
        return Gpu(f"GPU-{cuda.get_device_properties(most).uuid}")
    return None


def _open_library() -> ctypes.CDLL | None:
    """Return NVML, ready to be used; None without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return nvml if nvml.nvmlInit_v2() == 0 else None
