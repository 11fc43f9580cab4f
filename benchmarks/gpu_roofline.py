"""What this GPU can do at most, as this torch drives it: copies and matrix products.

python benchmarks/gpu_roofline.py [--cpu]
"""

from collections.abc import Iterator

import torch
from gpu_device import Bench, Line, print_part
from rows import Row, measured_row

ROUNDS = 7


def copied_gb_s(bench: Bench, target: torch.Tensor, source: torch.Tensor) -> float:
    """Return the gigabytes a second of one copy."""
    return source.nbytes / bench.device_s(lambda: target.copy_(source, non_blocking=True)) / 1e9


def copies(bench: Bench) -> Iterator[Line]:
    size = bench.pick(2**30, 2**22)
    there, here = (torch.zeros(size, dtype=torch.uint8, device=bench.device) for _ in range(2))
    yield measured_row(
        "copy within the device's memory, read and written",
        "GB/s",
        lambda: 2 * copied_gb_s(bench, there, here),
        {},
        rounds=ROUNDS,
        warm_up=True,
    )
    if not bench.on_gpu:
        yield "copies between host and device: needs a GPU"
        return
    pageable, pinned = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    for name, arguments in {
        "host to device": lambda host: (there, host),
        "device to host": lambda host: (host, there),
    }.items():
        yield measured_row(
            f"copy {name}, pinned",
            "GB/s",
            lambda arguments=arguments: copied_gb_s(bench, *arguments(pinned)),
            {"pageable": lambda arguments=arguments: copied_gb_s(bench, *arguments(pageable))},
            rounds=ROUNDS,
            warm_up=True,
        )


def lines(bench: Bench) -> Iterator[Line]:
    yield from copies(bench)
    for dtype in (torch.bfloat16, torch.float32):
        samples = tuple(rate / 1e12 for rate in bench.matmul_flops(dtype, ROUNDS))
        yield Row(name=f"matrix product in {dtype}".replace("torch.", ""), unit="TFLOP/s", ours=samples, peers={})


if __name__ == "__main__":
    print_part(lines)
