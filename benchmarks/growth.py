"""How start, end and memory of a job grow with its ranks, all on one machine by fork; prints the exponents.

    python benchmarks/growth.py            up to 512 ranks on one node
    python benchmarks/growth.py nodes      one rank on each of up to 64 nodes of the sandbox

In a `group` the program forms a gloo group and takes a step. That has its limits on one machine: all ranks connect to
each other, and a kernel keeps 1,024 addresses of neighbours for all its namespaces
(net.ipv4.neigh.default.gc_thresh3). `alone` it does neither; the exponents are those of the last two.
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
from slurmddp.runs.files import read_records

JOBS = {
    "ranks": [(2, "group"), (8, "group"), (32, "group"), (128, "group"), (128, "alone"), (512, "alone")],
    "nodes": [(2, "group"), (8, "group"), (32, "alone"), (64, "alone")],
}
"""Each node has an interpreter of its own, so that two cores import torch so many times."""
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

    @property
    def begun(self) -> float:
        """From the first fork until all ranks have met and run the program."""
        return self.forked + self.met


def measure(nodes: int, ranks: int, mode: str, folder: Path, environment: dict[str, str]) -> Point:
    """Run one job and read its times from its events and its output."""
    name = f"{mode}-{ranks}"
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


def main(kind: str) -> None:
    """Print a line for each size, and the exponents."""
    jobs = JOBS[kind]
    largest = jobs[-1][0]
    nodes, cpus = (largest, 1) if kind == "nodes" else (1, largest)
    plan = sandbox.Plan(name=f"benchmark-{os.getpid()}", nodes=nodes, gpus_per_node=0, cpus_per_node=cpus)
    cluster = sandbox.up(plan, die_with_parent=True)
    environment = {**os.environ, **cluster.environment(), "OMP_NUM_THREADS": "1"}
    points: list[Point] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(PROGRAM)
            print(HEAD)
            for size, mode in jobs:
                points.append(measure(size if kind == "nodes" else 1, size, mode, Path(folder), environment))
                print(FORM.format(*points[-1]), mode, flush=True)
    finally:
        cluster.down()
    print("exponents", ", ".join(f"{field} {exponent(points, field):.2f}" for field in ("begun", "end")))


if __name__ == "__main__":
    chosen = " ".join(sys.argv[1:]) or "ranks"
    if chosen not in JOBS:
        sys.exit(f"{chosen!r} is not known; give nothing, or: {' '.join(JOBS)}")
    main(chosen)
