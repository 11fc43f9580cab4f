"""How fast each rank computes, and how fast the nodes exchange data."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import torch
import torch.distributed as dist

from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.store_channel import Talk
from slurmddp.runtime.launch.rank import Rank

SLOW_RANK: Final = 1.5
"""A rank whose product takes so many times the median is slow."""
SLOW_PAIR: Final = 2.0
"""Two nodes whose exchange takes so many times the median are badly connected."""
_PAIRS_TO_JUDGE: Final = 3
_NOBODY: Final = -1
_REPEATS: Final = 5
_COMPUTE_S: Final = 0.5
"""The best of a rank's products in so many seconds counts: others may use the machine, too."""


def measure(rank: Rank, talk: Talk, device: torch.device) -> list[Finding]:
    """Measure products, the all-reduce of all ranks, and the exchange of each pair of nodes; rank 0 returns them.

    Needs the default group.
    """
    talk.meet("compute")
    computed = talk.gather("computed", [rank.rank, rank.host, _product_s(device)])
    talk.meet("computed")
    if rank.world_size == 1:
        return list(of_products(computed))
    buffer = torch.ones(_elements(device), device=device)
    all_s = _best_s(lambda: dist.all_reduce(buffer), device)
    pairs = talk.gather("pairs", _exchange_all(rank, buffer, device))
    hosts = talk.gather("hosts", rank.host)
    size = buffer.numel() * buffer.element_size()
    if not rank.is_main:
        return []
    named = [(hosts[first], hosts[second], seconds) for row in pairs for first, second, seconds in row]
    return [*of_products(computed), _of_all(rank, size, all_s), *of_pairs(named, size)]


def _elements(device: torch.device) -> int:
    """256 MiB between GPUs, 4 MiB between CPUs."""
    return 2**26 if device.type == "cuda" else 2**20


def _product_s(device: torch.device) -> float:
    """Return the seconds of one product of matrices: 8192x8192 in bfloat16 on a GPU, 512x512 in float32 on a CPU."""
    gpu = device.type == "cuda"
    matrix = torch.ones((8192, 8192) if gpu else (512, 512), device=device, dtype=torch.bfloat16 if gpu else None)
    began, best_s = time.monotonic(), float("inf")
    while time.monotonic() - began < _COMPUTE_S:
        best_s = min(best_s, _seconds(lambda: matrix @ matrix, device))
    return best_s


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    _finish(device)
    began = time.perf_counter()
    work()
    _finish(device)
    return time.perf_counter() - began


def _best_s(work: Callable[[], object], device: torch.device) -> float:
    return min(_seconds(work, device) for _ in range(_REPEATS))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _exchange_all(rank: Rank, buffer: torch.Tensor, device: torch.device) -> list[tuple[int, int, float]]:
    """Let the first ranks of the nodes exchange a buffer, each with each; return this one's, each pair once."""
    measured = []
    for pairs in rounds(rank.nodes):
        dist.barrier()
        mine = next((pair for pair in pairs if rank.local_rank == 0 and rank.node_rank in pair), None)
        if mine:
            first, second = (node * rank.local_world_size for node in mine)
            peer = second if rank.rank == first else first
            seconds = _best_s(partial(_exchange, buffer, peer), device)
            measured += [(first, second, seconds)] if rank.rank == first else []
    return measured


def _exchange(buffer: torch.Tensor, peer: int) -> None:
    other = torch.empty_like(buffer)
    swap = [dist.P2POp(dist.isend, buffer, peer), dist.P2POp(dist.irecv, other, peer)]
    for work in dist.batch_isend_irecv(swap):
        work.wait()


def rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds in which each of `count` players meets another, until all have met: the circle method."""
    players = [*range(count), *([_NOBODY] if count % 2 else [])]
    half = len(players) // 2
    for _ in range(len(players) - 1):
        pairs = zip(players[:half], reversed(players[half:]), strict=True)
        yield [(min(pair), max(pair)) for pair in pairs if _NOBODY not in pair]
        players = [players[0], players[-1], *players[1:-1]]


def of_products(computed: Sequence[tuple[int, str, float]]) -> Iterator[Finding]:
    """Yield the ranks whose product takes longer than the others'; `computed` has rank, host, seconds."""
    if not computed:
        return
    middle_s = statistics.median(seconds for _, _, seconds in computed)
    slow = [each for each in computed if each[2] > SLOW_RANK * middle_s]
    for number, host, seconds in slow:
        yield Finding(
            check="compute",
            level="warning",
            host=host,
            rank=number,
            what=f"a product of matrices takes {seconds * 1000:.2f} ms, in the median {middle_s * 1000:.2f} ms",
            why="all ranks wait for the slowest in every step",
            advice=f"look for another program or a throttled GPU there, or leave the node out by --exclude {host}",
        )
    if not slow:
        most_s = max(seconds for _, _, seconds in computed)
        what = f"a product of matrices takes {middle_s * 1000:.2f} ms in the median, {most_s * 1000:.2f} ms at most"
        yield Finding(check="compute", level="ok", what=what)


def _of_all(rank: Rank, size: int, all_s: float) -> Finding:
    """Bus bandwidth as nccl-tests counts it: 2 (n - 1) / n times the bytes, by the time."""
    rate = 2 * (rank.world_size - 1) / rank.world_size * size / all_s / 1e9
    what = f"all {rank.world_size} ranks: {size / 2**20:.0f} MiB in {all_s * 1000:.1f} ms, {rate:.2f} GB/s"
    return Finding(check="all-reduce", level="ok", what=what)


def of_pairs(pairs: Sequence[tuple[str, str, float]], size: int) -> Iterator[Finding]:
    """Yield the bandwidth between nodes, and the pairs far below the median; `pairs` has two hosts and seconds."""
    if not pairs:
        return
    middle_s = statistics.median(seconds for _, _, seconds in pairs)
    slow = [each for each in pairs if len(pairs) >= _PAIRS_TO_JUDGE and each[2] > SLOW_PAIR * middle_s]
    for first, second, seconds in slow:
        yield Finding(
            check="links",
            level="warning",
            host=first,
            what=f"exchanges {size / seconds / 1e9:.2f} GB/s with {second}, in the median {size / middle_s / 1e9:.2f}",
            why="every all-reduce goes at the pace of the slowest link",
            advice="choose the fast network by --interface, or leave the node out by --exclude",
        )
    if not slow:
        rates = [size / seconds / 1e9 for _, _, seconds in pairs]
        what = f"pairs of nodes exchange {min(rates):.2f} to {max(rates):.2f} GB/s, each way"
        yield Finding(check="links", level="ok", what=what)
