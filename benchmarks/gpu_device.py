"""What the parts of gpu.py share: the device and its sizes, times on it, and how a part is printed. No files."""

import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from rows import Row, print_rows, seconds

NO_GPU = 3
FAILED = "FAILED"
"""How a line begins that makes the status of a part 1."""

Line = Row | str
Size = TypeVar("Size")


@dataclass(frozen=True)
class Bench:
    """Where the parts run, and how large they are there."""

    device: torch.device

    @property
    def on_gpu(self) -> bool:
        """Whether this measures anything; on the CPU the parts are only tried."""
        return self.device.type == "cuda"

    def pick(self, full: Size, tiny: Size) -> Size:
        """Return a size for the GPU, or that for a trial on the CPU."""
        return full if self.on_gpu else tiny

    def finish(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def device_s(self, work: Callable[[], object]) -> float:
        """Return the seconds between the begin and the end of some work in the current stream."""
        if not self.on_gpu:
            return seconds(work)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000

    def matmul_flops(self, dtype: torch.dtype, rounds: int = 5) -> tuple[float, ...]:
        """Return samples of the floating-point operations a second in products of square matrices."""
        width, repeats = self.pick(8192, 256), self.pick(10, 2)
        left, right = (torch.randn(width, width, device=self.device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(left)

        def products() -> None:
            for _ in range(repeats):
                torch.mm(left, right, out=out)

        self.device_s(products)
        return tuple(2 * width**3 * repeats / self.device_s(products) for _ in range(rounds))

    def matmul_rate(self, dtype: torch.dtype) -> float:
        """Return the median of `matmul_flops`."""
        return statistics.median(self.matmul_flops(dtype))


def why_no_gpu() -> str:
    """Return why there is no GPU to measure; empty when there is one."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    return "" if torch.cuda.is_available() else f"torch {torch.__version__} finds none"


def leave_without_gpu(words: list[str], part: str = "the parts that can run without one") -> None:
    """End the program, with the reason, where there is no GPU and no --cpu."""
    reason = why_no_gpu()
    if reason and "--cpu" not in words:
        print(f"no GPU: {reason}; --cpu tries {part}")
        sys.exit(NO_GPU)


def bench_of(words: list[str]) -> Bench:
    """Return the CPU for --cpu, else the first GPU."""
    return Bench(torch.device("cpu") if "--cpu" in words else torch.device("cuda", 0))


def print_part(lines: Callable[[Bench], Iterable[Line]]) -> None:
    """Print what a part yields; end with status 1 when something has failed."""
    leave_without_gpu(sys.argv[1:], "it without one")
    failed = False
    for line in lines(bench_of(sys.argv[1:])):
        if isinstance(line, Row):
            print_rows([line])
        else:
            print(line, flush=True)
            failed |= line.startswith(FAILED)
    if failed:
        sys.exit(1)
