"""The checks of `slurmddp doctor --in-job` on all nodes of a job; each finding names host and rank.

It compares the facts of the ranks, checks folder, network, clocks and signals, and measures how fast each rank computes
and how fast the nodes exchange data.

python -m slurmddp.worker -m slurmddp.runtime.health.check
"""

import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any, Final

import torch
import torch.distributed as dist

from slurmddp.background import wait_until
from slurmddp.errors import ClusterError
from slurmddp.runs.files import write_whole
from slurmddp.runs.findings import Finding
from slurmddp.runtime.health.facts import Facts, gather_facts
from slurmddp.runtime.health.network import StoreChannel, check_clocks, check_ports
from slurmddp.runtime.health.preflight import judge_all
from slurmddp.runtime.health.rules import finding
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rank_process import this_process
from slurmddp.runtime.rendezvous.process_group import FORM_LIMIT, choose_device, form_group, leave_group
from slurmddp.slurm import client, commands
from slurmddp.text import count

REACH_LIMIT_S: Final = 30.0
SHARED_LIMIT_S: Final = 10.0
"""For a file of one node to be seen by the first; NFS caches attributes for a minute at most."""
_ASK_LIMIT_S: Final = 30.0
SLOW_RANK: Final = 1.5
"""A rank is slow when its matrix product takes this many times the median."""
SLOW_LINK: Final = 2.0
"""A link between two nodes is slow when its exchange takes this many times the median."""
_FEWEST_LINKS: Final = 3
"""With fewer links than this none is called slow."""
_REPEATS: Final = 5
_COMPUTE_S: Final = 0.5
"""The fastest matrix product in this time counts, because others may use the machine too."""


def main() -> None:
    """Run all checks, the fast and certain ones first; rank 0 writes the findings."""
    rank = this_process().stopping.rank
    channel = StoreChannel(rank)
    found = _judge_facts(rank, channel.gather("facts", asdict(gather_facts(rank, (), os.environ))))
    _write(rank, found)
    for check in (check_ports, check_clocks, check_signals):
        found += check(rank, channel)
        _write(rank, found)
    closed = any(finding.level == "error" for finding in found if finding.check == "ports")
    if channel.broadcast("ports are closed", closed):  # then no group can form
        _write(rank, found, complete=True)
        return
    device = choose_device("auto", rank)
    form_group(rank, device, FORM_LIMIT)
    _write(rank, found + measure(rank, channel, device), complete=True)
    leave_group(dist.group.WORLD)


def _write(rank: Rank, findings: list[Finding], *, complete: bool = False) -> None:
    """Write the findings so far, as rank 0: the next check may not end. `complete` says that no check follows."""
    if rank.is_main and rank.run_dir:
        content = {"complete": complete, "findings": [asdict(finding) for finding in findings]}
        write_whole(rank.run_dir.findings, json.dumps(content).encode())


def _judge_facts(rank: Rank, sent: list[dict[str, Any]]) -> list[Finding]:
    """Return, on rank 0, what is wrong with the facts of all ranks, and a line for each check that found nothing."""
    facts = [Facts(**each) for each in sent]
    findings = judge_all(rank, facts, SHARED_LIMIT_S, "error")
    ranks = [each for each in facts if not each.failure]
    if not ranks:
        return findings
    wrong = {finding.check for finding in findings}
    gpus = ", ".join(dict.fromkeys(ranks[0].gpus))
    nodes = count(sum(each.is_leader for each in ranks), "node")
    passed = {
        "folder": f"{ranks[0].host} sees what {nodes} wrote into the run's folder",
        "versions": "alike on all ranks: " + ", ".join(f"{key} {value}" for key, value in ranks[0].versions.items()),
        "gpus": f"each rank has a GPU of its own: {gpus}" if gpus else "no rank sees a GPU",
        "affinity": f"CPUs that each rank may run on: {_span([len(each.cpus) for each in ranks])}",
        "shm": f"/dev/shm has {_span([each.shm_mb for each in ranks])} MB on each node",  # noqa: S108 - text only
    }
    return [*findings, *(Finding(check=key, level="ok", what=what) for key, what in passed.items() if key not in wrong)]


def _span(numbers: list[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def check_signals(rank: Rank, channel: StoreChannel) -> list[Finding]:
    """Let Slurm send USR2 to the step; rank 0 returns the ranks that did not receive it.

    Replaces this process's handler of USR2.
    """
    received: list[float] = []  # an Event in a handler waits for ever where the signal meets the wait for it
    signal.signal(signal.SIGUSR2, lambda *_: received.append(time.monotonic()))
    channel.share("signal handlers")
    began = time.monotonic()
    refusal = channel.broadcast("signal", _send(rank) if rank.is_main else None)
    wait_until(lambda: refusal or received, REACH_LIMIT_S)
    arrived = received and not refusal
    answers = channel.gather("received", [rank.rank, rank.host, received[0] - began if arrived else None])
    return _judge_signals(refusal, answers) if rank.is_main else []


def _send(rank: Rank) -> str:
    """Let Slurm send the signal; return why it could not, empty if it did."""
    if not rank.under_srun:
        return "the ranks were not started by srun"
    step = os.environ.get("SLURM_STEP_ID")
    job = os.environ.get("SLURM_JOB_ID", rank.job)
    command = commands.cancel(f"{job}.{step}" if step else job, signal="USR2")
    try:
        answer = client.ask(command, os.environ, timeout_s=_ASK_LIMIT_S)
    except ClusterError as error:
        return str(error).removesuffix(f"; {client.NO_CLUSTER}")
    return answer.stderr.strip() if answer.status else ""


def _judge_signals(refusal: str, answers: "list[tuple[int, str, float | None]]") -> list[Finding]:
    if refusal:
        return [finding("notice", "untried", refusal=refusal)]
    silent = [(number, host) for number, host, after_s in answers if after_s is None]
    missing = [finding("notice", "missed", host=host, rank=number, limit_s=REACH_LIMIT_S) for number, host in silent]
    slowest_s = max((after_s for _, _, after_s in answers if after_s is not None), default=0.0)
    return missing or [finding("notice", "ok", slowest_s=slowest_s)]


def measure(rank: Rank, channel: StoreChannel, device: torch.device) -> list[Finding]:
    """Measure matrix products, the all-reduce of all ranks, and the exchange of each node with the next.

    Rank 0 returns the findings. Needs the default process group.
    """
    channel.share("compute")
    computed = channel.gather("computed", [rank.rank, rank.host, _time_product(device)])
    channel.share("products")
    if rank.world_size == 1:
        return list(judge_products(computed))
    elements = 2**26 if device.type == "cuda" else 2**20  # 256 MiB between GPUs, 4 MiB between CPUs
    buffer = torch.ones(elements, device=device)
    all_reduce_s = min(_seconds(lambda: dist.all_reduce(buffer), device) for _ in range(_REPEATS))
    links = chain.from_iterable(channel.gather("links", _time_links(rank, buffer, device)))
    if not rank.is_main:
        return []
    rate = 2 * (rank.world_size - 1) / rank.world_size * buffer.nbytes / all_reduce_s / 1e9  # as nccl-tests: busbw
    sizes = {"ranks": rank.world_size, "size_mb": buffer.nbytes >> 20}
    named = [(computed[first][1], computed[second][1], seconds) for first, second, seconds in links]
    all_reduce = finding("all-reduce", "ok", **sizes, took_ms=all_reduce_s * 1000, rate=rate)
    return [*judge_products(computed), all_reduce, *judge_links(named, buffer.nbytes)]


def _time_product(device: torch.device) -> float:
    """Return the seconds of one matrix product: 8192x8192 in bfloat16 on a GPU, 512x512 in float32 on a CPU."""
    gpu = device.type == "cuda"
    matrix = torch.ones((8192, 8192) if gpu else (512, 512), device=device, dtype=torch.bfloat16 if gpu else None)
    began, fastest_s = time.monotonic(), float("inf")
    while time.monotonic() - began < _COMPUTE_S:
        fastest_s = min(fastest_s, _seconds(lambda: matrix @ matrix, device))
    return fastest_s


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long some work takes until the device has finished it."""
    synchronize = torch.cuda.synchronize if device.type == "cuda" else torch.cpu.synchronize
    synchronize()
    began = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - began


def _time_links(rank: Rank, buffer: torch.Tensor, device: torch.device) -> list[tuple[int, int, float]]:
    """Let the first ranks of neighbouring nodes exchange a buffer; return the links that begin at this rank."""
    measured = []
    for links in ring_rounds(rank.nodes):
        dist.barrier()
        own = next((link for link in links if rank.local_rank == 0 and rank.node_rank in link), None)
        if own:
            first, second = (node * rank.local_world_size for node in own)
            exchange = partial(_exchange, buffer, second if rank.rank == first else first)
            seconds = min(_seconds(exchange, device) for _ in range(_REPEATS))
            measured += [(first, second, seconds)] if rank.rank == first else []
    return measured


def _exchange(buffer: torch.Tensor, peer: int) -> None:
    received = torch.empty_like(buffer)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, buffer, peer), dist.P2POp(dist.irecv, received, peer)]):
        work.wait()


def ring_rounds(nodes: int) -> list[list[tuple[int, int]]]:
    """Return the links of a ring of nodes, in rounds in which no node takes part twice."""
    links = [(node, node + 1) for node in range(nodes - 1)] + [(0, nodes - 1)] * (nodes > 2)  # noqa: PLR2004 - two nodes have one link
    even = nodes - nodes % 2
    return [links[:even:2], links[1:even:2], links[even:]]


def judge_products(computed: Sequence[tuple[int, str, float]]) -> Iterator[Finding]:
    """Yield the ranks whose matrix product is slow; `computed` has rank, host, seconds."""
    median_s = statistics.median(seconds for _, _, seconds in computed)
    slow = [each for each in computed if each[2] > SLOW_RANK * median_s]
    for number, host, seconds in slow:
        yield finding("compute", "slow", host=host, rank=number, took_ms=seconds * 1000, median_ms=median_s * 1000)
    if not slow:
        slowest_s = max(seconds for _, _, seconds in computed)
        yield finding("compute", "ok", median_ms=median_s * 1000, slowest_ms=slowest_s * 1000)


def judge_links(links: Sequence[tuple[str, str, float]], size: int) -> Iterator[Finding]:
    """Yield the slow links, or the bandwidth of all links if none is slow; `links` has two hosts and seconds."""
    if not links:
        return
    median_s = statistics.median_low(seconds for _, _, seconds in links)
    slow = [link for link in links if len(links) >= _FEWEST_LINKS and link[2] > SLOW_LINK * median_s]
    for first, second, seconds in slow:
        rate, median = size / seconds / 1e9, size / median_s / 1e9
        yield finding("links", "slow", host=first, other=second, rate=rate, median=median)
    if not slow:
        rates = [size / seconds / 1e9 for _, _, seconds in links]
        yield finding("links", "ok", slowest=min(rates), fastest=max(rates))


if __name__ == "__main__":
    main()
