"""Lists the GPUs that this process can use, without CUDA: by NVIDIA's management library, else by Slurm's variables.

A CUDA context would cost seconds and memory, and the program could no longer change CUDA_VISIBLE_DEVICES.
"""

import ctypes
from typing import Final

_UUID_BYTES: Final = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE of nvml.h."""
HIDDEN: Final = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs."""


def select_visible(present: list[str], wanted: str | None) -> list[str]:
    """Return the GPUs of `present` that CUDA_VISIBLE_DEVICES (`wanted`) leaves visible, in its order.

    Words are numbers or the beginnings of UUIDs; the first that names no GPU ends the list (CUDA C++ Programming Guide,
    CUDA Environment Variables). Without known GPUs, return the words themselves.
    """
    if wanted is None:
        return present
    if wanted in HIDDEN:
        return []
    words = [word.strip() for word in wanted.split(",")]
    if not present:
        return words
    found: list[str] = []
    for word in words:
        uuid = _find_uuid(present, word)
        if uuid is None:
            break
        found.append(uuid)
    return found


def _find_uuid(present: list[str], word: str) -> str | None:
    if word.isdecimal():
        return present[int(word)] if int(word) < len(present) else None
    if word.startswith("MIG-"):
        return word
    return next((uuid for uuid in present if word and uuid.startswith(word)), None)


def list_uuids() -> list[str]:
    """Return the UUIDs of the GPUs that this process may open; empty without NVIDIA's driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        return _read_uuids(nvml)
    finally:
        nvml.nvmlShutdown()


def _read_uuids(nvml: ctypes.CDLL) -> list[str]:
    count, device, text = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found: list[str] = []
    for index in range(count.value):
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
            nvml.nvmlDeviceGetUUID(device, text, _UUID_BYTES)
            found.append(text.value.decode())
    return found
