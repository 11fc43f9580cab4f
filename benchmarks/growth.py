"""How start, end and memory of a job grow with its ranks, all on one machine by fork; prints the exponents.

    python benchmarks/growth.py [RANKS...]            on one node
    python benchmarks/growth.py nodes [NODES...]      one rank on each of so many nodes of the sandbox

Up to 128 ranks the program forms a gloo group and takes a step; above, each pair of ranks
would need a connection of gloo on this one machine, so the program forms no group.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from slurmddp import sandbox
from slurmddp.runs.layout import read_records

RANKS = (2, 8, 32, 128, 512)
NODES = (2, 8, 32)
"""Each has an interpreter of its own, so that two cores import torch so many times."""
LARGEST_GROUP = 128
HEAD = "ranks  imported s  forked s  met s  first step s  end s  MB a rank"
FORM = "{:5}  {:10.1f}  {:8.1f}  {:5.1f}  {:12.1f}  {:5.1f}  {:9.1f}"

PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist

print(f"met {time.time()}", flush=True)
ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
print(f"started {time.time() - age}")
if sys.argv[1] == "group":
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.randint(10, (8,))).backward()
    optimizer.step()
    dist.barrier()
print(f"stepped {time.time()}")
fields = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
private = sum(int(fields[name].split()[0]) for name in ("Private_Dirty", "Private_Clean"))
print(f"private {private / 1024}")
"""


class Point(NamedTuple):
    """One job. Seconds, but for the memory."""

    ranks: int
    imported: float
    """From the supervisor's start of the ranks until the first one is forked: the interpreter and its imports."""
    forked: float
    """From there until the last one is forked."""
    met: float
    """From there until all ranks have met and the last of them runs the program."""
    first_step: float
    """From the supervisor's start until the last rank has taken the first step."""
    end: float
    """From the last rank's step until the supervisor has seen the end of the attempt."""
    private_mb: float
    """Memory of a rank that it does not share, at the end of its program; the median of the ranks."""


def measure(nodes: int, ranks: int, folder: Path, environment: dict[str, str]) -> Point:
    """Run one job and read its times from its events and its output."""
    name = f"ranks-{ranks}"
    mode = "group" if ranks <= LARGEST_GROUP else "alone"
    command = [str(Path(sys.executable).parent / "slurmddp"), "submit", f"--nodes={nodes}"]
    command += [f"--ntasks-per-node={ranks // nodes}"]
    command += ["--launcher", "fork", "--name", name, "--wait", "train.py", mode]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    run = folder / "jobs" / name
    times = {event["event"]: float(event["time"]) for event in read_records(run / "events.jsonl")}
    outputs = [_read_output(path) for path in run.glob("logs/*/0.0/[0-9]*.out")]
    begin = times["attempt_start"]
    forks = [output["started"] for output in outputs]
    return Point(
        ranks,
        min(forks) - begin,
        max(forks) - min(forks),
        max(output["met"] for output in outputs) - max(forks),
        max(output["stepped"] for output in outputs) - begin,
        times["attempt_end"] - max(output["stepped"] for output in outputs),
        statistics.median(output["private"] for output in outputs),
    )


def exponent(points: list[Point], field: str) -> float:
    """Return the slope of a field over the ranks in a plot with two logarithmic axes, for the two largest sizes."""
    small, large = points[-2:]
    return math.log(getattr(large, field) / getattr(small, field)) / math.log(large.ranks / small.ranks)


def _read_output(path: Path) -> dict[str, float]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {
        words[0]: float(words[1]) for words in lines if words[:1] in (["started"], ["met"], ["stepped"], ["private"])
    }


def main() -> None:
    """Print a line for each number of ranks, and the exponents."""
    by_nodes = sys.argv[1:2] == ["nodes"]
    sizes = [int(word) for word in sys.argv[1 + by_nodes :]] or list(NODES if by_nodes else RANKS)
    nodes, cpus = (max(sizes), 1) if by_nodes else (1, max(sizes))
    plan = sandbox.Plan(name=f"benchmark-{os.getpid()}", nodes=nodes, gpus_per_node=0, cpus_per_node=cpus)
    cluster = sandbox.up(plan, die_with_parent=True)
    environment = {**os.environ, **cluster.environment(), "OMP_NUM_THREADS": "1"}
    points: list[Point] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(PROGRAM)
            print(HEAD)
            for ranks in sizes:
                points.append(point := measure(ranks if by_nodes else 1, ranks, Path(folder), environment))
                print(FORM.format(*point), flush=True)
    finally:
        cluster.down()
    if len(points) > 1:
        print("exponents", ", ".join(f"{field} {exponent(points, field):.2f}" for field in ("forked", "met", "end")))


if __name__ == "__main__":
    main()
