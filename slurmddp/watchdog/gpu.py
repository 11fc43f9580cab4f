"""What a GPU does, by NVIDIA's management library (nvml.h): no package and no CUDA context is needed."""

import ctypes
import sys
from contextlib import suppress
from typing import Final

_UUID_BYTES: Final = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE of nvml.h."""


def open_nvml() -> ctypes.CDLL:
    """Return the library, ready to be used. Raises OSError without a driver."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() != 0:
        raise OSError("NVML does not start")
    return nvml


def list_uuids() -> list[str]:
    """Return the UUIDs of the GPUs that this process may open; empty without a driver.

    A CUDA context would cost seconds and memory, and the program could no longer change CUDA_VISIBLE_DEVICES.
    """
    count, device, text = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
    found: list[str] = []
    with suppress(OSError):
        nvml = open_nvml()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
                nvml.nvmlDeviceGetUUID(device, text, _UUID_BYTES)
                found.append(text.value.decode())
        nvml.nvmlShutdown()
    return found


class OwnGpu:
    """The GPU on which this process has most memory, by a torch that uses CUDA and knows UUIDs (2.4 and newer).

    Each thread has a current device of its own, so that is not asked. Raises OSError or AttributeError without one.
    """

    def __init__(self) -> None:
        cuda, self._device = sys.modules["torch.cuda"], ctypes.c_void_p()
        uuid = cuda.get_device_properties(max(range(cuda.device_count()), key=cuda.memory_reserved)).uuid
        self._nvml, self._busy, self._times = open_nvml(), 0.0, 0
        if self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(self._device)):
            raise OSError(f"NVML has no GPU {uuid}")

    def measure(self) -> tuple[float, ...]:
        """Return the mean share of the time in which a kernel ran, the bytes used, all bytes, and the watts."""
        shares, sizes, milliwatts = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)(), ctypes.c_uint()
        self._nvml.nvmlDeviceGetUtilizationRates(self._device, shares)  # of the GPU, of its memory's bandwidth
        self._nvml.nvmlDeviceGetMemoryInfo(self._device, sizes)  # total, free, used
        self._nvml.nvmlDeviceGetPowerUsage(self._device, ctypes.byref(milliwatts))
        self._busy, self._times = self._busy + shares[0] / 100, self._times + 1
        return round(self._busy / self._times, 3), sizes[2], sizes[0], milliwatts.value / 1000
