"""How long the command line takes to answer, against the import of the libraries it stands on; the supervisor's start.

    python benchmarks/startup.py

Prints the ratio of medians, commands in turn, so that both see the same machine: at most 1.5 is wanted. Of the
supervisor it prints the CPU time up to its options, beside that of an empty Python: less than 0.1 s is wanted.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Both sides find their modules compiled, as after an installation."""
BASELINE = [sys.executable, "-c", "import click, jinja2"]
PROGRAM = [str(Path(sys.executable).parent / "slurmddp")]
MEASURED = {
    "slurmddp --help": [*PROGRAM, "--help"],
    "slurmddp render": [*PROGRAM, "render", "--nodes", "2", "--gpus-per-node", "8"],
}

SUPERVISOR = [sys.executable, "-P", "-u", "-m", "slurmddp.batch", "--protocol=1", "--signal-lead=120"]
"""Outside of a job it ends when it has read its options."""
BARE = [sys.executable, "-c", ""]


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
    return time.perf_counter() - begin


def cpu_seconds(command: list[str], status: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, check=False, capture_output=True, env=ENVIRONMENT).returncode
    if ended != status:
        sys.exit(f"{command} ended with {ended}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_supervisor() -> None:
    cpu_seconds(SUPERVISOR, 2)
    pairs = [(cpu_seconds(BARE, 0), cpu_seconds(SUPERVISOR, 2)) for _ in range(ROUNDS)]
    bare, supervisor = map(statistics.median, zip(*pairs, strict=True))
    print(f"slurmddp.batch: {supervisor:.3f} s of CPU, a Python alone {bare:.3f} s")


def main() -> None:
    times: dict[str, list[float]] = {"baseline": [], **{name: [] for name in MEASURED}}
    for command in MEASURED.values():
        seconds(command)
    for _ in range(ROUNDS):
        times["baseline"].append(seconds(BASELINE))
        for name, command in MEASURED.items():
            times[name].append(seconds(command))
    base = statistics.median(times["baseline"])
    for name in MEASURED:
        measured = statistics.median(times[name])
        print(f"{name}: {measured / base:.2f} times `import click, jinja2` ({measured:.3f} s against {base:.3f} s)")
    measure_supervisor()


if __name__ == "__main__":
    main()
