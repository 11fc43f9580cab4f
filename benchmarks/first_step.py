"""How soon 2 x 8 ranks have taken their first step: one interpreter a rank (srun) against one a node (fork).

    python benchmarks/first_step.py

Each round submits a small DDP program by both launchers on a sandbox of this machine. Measured is the time from the
supervisor's start of the ranks to the end of rank 0's first optimizer step. A ratio of at most 0.25 is wanted.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from slurmddp import sandbox
from slurmddp.runs.layout import read_records

ROUNDS = 3
LAUNCHERS = ("srun", "fork")


PROGRAM = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.randint(10, (8,))).backward()
optimizer.step()
print(f"first step at {time.time()}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def seconds_to_first_step(launcher: str, folder: Path, environment: dict[str, str]) -> float:
    name = f"{launcher}-{len(list(folder.glob('jobs/*')))}"
    command = [str(Path(sys.executable).parent / "slurmddp"), "submit", "--nodes", "2", "--gpus-per-node", "8"]
    command += ["--launcher", launcher, "--name", name, "--wait", "train.py"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    run = folder / "jobs" / name
    first_step = next(run.glob("logs/*/0.0/0.out")).read_text().split("first step at ")[1].split()[0]
    started = next(event for event in read_records(run / "events.jsonl") if event["event"] == "attempt_start")
    return float(first_step) - float(started["time"])


def main() -> None:
    plan = sandbox.Plan(name=f"benchmark-{os.getpid()}", nodes=2, gpus_per_node=8, cpus_per_node=16)
    cluster = sandbox.up(plan, die_with_parent=True)
    times: dict[str, list[float]] = {launcher: [] for launcher in LAUNCHERS}
    environment = {**os.environ, **cluster.environment(), "OMP_NUM_THREADS": "1"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(PROGRAM)
            for _ in range(ROUNDS):
                for launcher in LAUNCHERS:
                    times[launcher].append(seconds_to_first_step(launcher, Path(folder), environment))
    finally:
        cluster.down()
    srun, fork = (statistics.median(times[launcher]) for launcher in LAUNCHERS)
    print(f"first step by fork: {fork / srun:.2f} times srun ({fork:.1f} s against {srun:.1f} s, 2 x 8 ranks)")


if __name__ == "__main__":
    main()
