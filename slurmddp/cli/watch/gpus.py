"""The GPUs of this machine, by nvidia-ml. A job's are shown where the job runs here: no other machine's are seen."""

import contextlib
import socket
from typing import Any

from slurmddp.cli.watch.view import Gpu
from slurmddp.monitoring.status import JobStatus


def of_job(job: JobStatus) -> tuple[Gpu, ...]:
    """Return the GPUs that the job can use and this process can see; none unless this is a node of the job."""
    here = socket.gethostname().partition(".")[0]
    return gpus() if job.phase == "running" and here in job.nodes else ()


def gpus() -> tuple[Gpu, ...]:
    """Return this machine's GPUs; none without the package nvidia-ml-py (the extra `gpu`), or without a driver."""
    try:
        import pynvml  # type: ignore[import-not-found]  # an extra
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    watts = celsius = None
    with contextlib.suppress(nvml.NVMLError):  # not every GPU tells
        watts = nvml.nvmlDeviceGetPowerUsage(device) / 1000
        celsius = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
    return Gpu(index=index, busy=busy, memory=memory.used / memory.total, watts=watts, celsius=celsius)
