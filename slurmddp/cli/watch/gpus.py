"""The GPUs of this machine, read by NVML. GPUs of other machines cannot be read."""

import contextlib
import socket
from typing import Any

from slurmddp.cli.watch.view import Gpu
from slurmddp.monitoring.status import JobStatus


def job_gpus(job: JobStatus) -> tuple[Gpu, ...]:
    """Return the GPUs of this machine, if the job runs on it."""
    host = socket.gethostname().partition(".")[0]
    return read_gpus() if job.phase == "running" and host in job.nodes else ()


def read_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine; none without a driver, or without the package nvidia-ml-py (the extra `gpu`)."""
    try:
        import pynvml  # type: ignore[import-not-found]  # an extra
    except ImportError:
        return ()
    with contextlib.suppress(pynvml.NVMLError), contextlib.ExitStack() as stack:
        pynvml.nvmlInit()
        stack.callback(pynvml.nvmlShutdown)
        return tuple(_read_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    return ()


def _read_gpu(nvml: Any, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
    return Gpu(index=index, busy=busy, memory=memory.used / memory.total)
