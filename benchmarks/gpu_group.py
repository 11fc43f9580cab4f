"""A group of one rank, by NCCL: how long it takes to form, and its first all-reduce.

python benchmarks/gpu_group.py [--cpu]

Each sample is a process of its own, whose CUDA context is there before.
"""

import os
from collections.abc import Iterator

from gpu_device import Bench, Line, print_part
from gpu_ranks import PROGRAMS, run_rank
from rows import Row

THINGS = ("the group is formed", "the first all-reduce, 4 MiB", "the second all-reduce, 4 MiB")
PEER = "torch's init_process_group"


def laps_ms(way: str, bench: Bench) -> list[float]:
    printed = run_rank([str(PROGRAMS / "one_group.py"), way, bench.device.type], os.environ)
    laps = next(line for line in printed.splitlines() if line.startswith("LAPS"))
    return [float(lap) * 1000 for lap in laps.split()[1:]]


def lines(bench: Bench) -> Iterator[Line]:
    rounds = range(bench.pick(4, 1))
    taken = [(laps_ms("slurmddp", bench), laps_ms("torch", bench)) for _ in rounds]
    backend = bench.pick("NCCL", "gloo (NCCL needs a GPU)")
    for number, thing in enumerate(THINGS):
        ours, theirs = (tuple(pair[side][number] for pair in taken) for side in range(2))
        yield Row(name=f"one rank, {backend}: {thing}", unit="ms", ours=ours, peers={PEER: theirs})


if __name__ == "__main__":
    print_part(lines)
