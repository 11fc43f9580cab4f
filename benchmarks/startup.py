"""How long the command line takes to answer, against the import of the libraries it stands on.

    python benchmarks/startup.py

Prints the ratio of medians, commands in turn, so that both see the same machine. At most 1.5 is wanted.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 15
BASELINE = [sys.executable, "-c", "import click, jinja2"]
PROGRAM = [sys.executable, "-m", "slurmddp.cli"]
MEASURED = {
    "slurmddp --help": [*PROGRAM, "--help"],
    "slurmddp render": [*PROGRAM, "render", "--nodes", "2", "--gpus-per-node", "8"],
}


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    times: dict[str, list[float]] = {"baseline": [], **{name: [] for name in MEASURED}}
    for _ in range(ROUNDS):
        times["baseline"].append(seconds(BASELINE))
        for name, command in MEASURED.items():
            times[name].append(seconds(command))
    base = statistics.median(times["baseline"])
    for name in MEASURED:
        measured = statistics.median(times[name])
        print(f"{name}: {measured / base:.2f} times `import click, jinja2` ({measured:.3f} s against {base:.3f} s)")


if __name__ == "__main__":
    main()
