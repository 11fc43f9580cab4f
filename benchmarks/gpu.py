"""What slurmddp does on a GPU: each part measured, or seen to work, on a machine with at least one of NVIDIA's.

    python benchmarks/gpu.py [--cpu] [PART...]

It needs torch with CUDA and what slurmddp depends on; no Slurm, no installed slurmddp. --cpu tries, in tiny sizes, what
can run without a GPU: its numbers mean nothing. Each part is a process of its own; a part that fails does not end the
others. The status is 1 when one has failed, 3 without a GPU.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from gpu_device import leave_without_gpu
from programs import HERE, ROOT

PARTS = {
    "roofline": "what the device can do",
    "group": "a group of one rank",
    "health": "facts, preflight and checks",
    "save": "checkpoints from the device's memory",
    "notice": "a notice in the training loop",
    "flight": "the flight recorder",
    "paths": "bf16, torch.compile and FSDP2",
    "survivors": "ranks that save after another was killed",
    "loop": "the worker against a hand-written loop",
}
LIMIT_S = 480
"""For a part."""


def machine() -> Iterator[str]:
    """Yield what was measured on."""
    yield f"{platform.node()}: {len(os.sched_getaffinity(0))} CPUs, {platform.platform()}"
    yield f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        yield f"GPU {index}: {found.name}, {found.total_memory / 2**30:.0f} GiB, {found.multi_processor_count} SMs"
    if torch.cuda.is_available():
        yield f"driver {driver()}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"


def driver() -> str:
    """Return the version of NVIDIA's driver."""
    path = Path("/sys/module/nvidia/version")
    if path.exists():
        return path.read_text().strip()
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def measure(part: str, flags: list[str]) -> str:
    """Run a part, which prints its rows; return why it failed, empty if it did not."""
    print(f"== {part}: {PARTS[part]}", flush=True)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(HERE / f"gpu_{part}.py"), *flags]
    try:
        status = subprocess.run(command, env=environment, timeout=LIMIT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"{part} (not done in {LIMIT_S} s)"
    return f"{part} (status {status})" if status else ""


def main(words: list[str]) -> int:
    """Return the exit status."""
    flags = [word for word in words if word == "--cpu"]
    chosen = [word for word in words if word != "--cpu"] or list(PARTS)
    unknown = sorted({*chosen} - {*PARTS})
    if unknown:
        sys.exit(f"{' '.join(unknown)}: there are {' '.join(PARTS)}, and --cpu")
    leave_without_gpu(flags)
    print(*machine(), sep="\n", flush=True)
    failed = list(filter(None, (measure(part, flags) for part in chosen)))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
