"""How soon 2 x 8 ranks have taken their first step: one interpreter a rank (srun) against one a node (fork).

    python benchmarks/first_step.py

Each round submits the bundled worker by both launchers on a sandbox of this machine. Measured is the time from the
batch script's first line to rank 0's record of the first step. A ratio of at most 0.25 is wanted.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from slurmddp import sandbox

ROUNDS = 3
LAUNCHERS = ("srun", "fork")


def seconds_to_first_step(launcher: str, folder: Path, environment: dict[str, str]) -> float:
    name = f"{launcher}-{len(list(folder.glob('jobs/*')))}"
    command = [str(Path(sys.executable).parent / "slurmddp"), "submit", "--nodes", "2", "--gpus-per-node", "8"]
    command += ["--launcher", launcher, "--name", name, "--wait", "--", "--epochs", "1", "--batch-size", "8"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    run = folder / "jobs" / name
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    first_step = next(event["time"] for event in events if event["event"] == "first_step")
    return first_step - _begin(next(run.glob("logs/*.out")))


def _begin(batch_log: Path) -> float:
    stamp = batch_log.read_text().split()[0]
    return datetime.fromisoformat(stamp).timestamp()


def main() -> None:
    plan = sandbox.Plan(name=f"benchmark-{os.getpid()}", nodes=2, gpus_per_node=8, cpus_per_node=16)
    cluster = sandbox.up(plan, die_with_parent=True)
    times: dict[str, list[float]] = {launcher: [] for launcher in LAUNCHERS}
    environment = {**os.environ, **cluster.environment(), "OMP_NUM_THREADS": "1"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(ROUNDS):
                for launcher in LAUNCHERS:
                    times[launcher].append(seconds_to_first_step(launcher, Path(folder), environment))
    finally:
        cluster.down()
    srun, fork = (statistics.median(times[launcher]) for launcher in LAUNCHERS)
    print(f"first step by fork: {fork / srun:.2f} times srun ({fork:.1f} s against {srun:.1f} s, 2 x 8 ranks)")


if __name__ == "__main__":
    main()
