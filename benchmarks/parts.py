"""How the parts of a large job grow with its ranks, each by itself in one process; prints the exponents.

    python benchmarks/parts.py [RANKS...]

Measured are what rank 0 and the commands do for each rank of a job: claims, lists of hosts, exit records, and the
commands that read all of them.
"""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmddp.runs.exit_records import read_records, record_line
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.health.facts import Facts
from slurmddp.runtime.launch.rank import list_ranks
from slurmddp.runtime.rendezvous.claims import Claims, ranks_by_host
from slurmddp.slurm.hostlist import expand, format_ranges

RANKS = (1024, 4096)
A_NODE = 8
LINES = 20
"""Of output of each rank."""


def seconds(work: Callable[[], object]) -> float:
    """Return how long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def claims(ranks: int) -> float:
    """Rank 0 checks the claims of all ranks, and makes the table of ranks by host."""
    made = [
        Facts(rank=rank, local_rank=rank % A_NODE, node_rank=rank // A_NODE, world_size=ranks, host=host(rank), pid=1)
        for rank in range(ranks)
    ]
    checked = Claims()

    def work() -> None:
        if any(map(checked.add, made)) or len(ranks_by_host(checked.arrived)) != ranks // A_NODE:
            raise SystemExit("a claim was refused")

    return seconds(work)


def host_lists(ranks: int) -> float:
    """Names of the nodes from Slurm's list, and the numbers of the ranks as a list."""
    return seconds(lambda: (expand(f"n[1-{ranks // A_NODE}]"), format_ranges(range(ranks)), list_ranks(range(ranks))))


def exit_records(ranks: int) -> float:
    """The supervisor reads a record of each rank."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            Path(folder, f"{rank}.end").write_text(record_line(rank, host(rank), 76, "lost its peer"))
        return seconds(lambda: read_records(Path(folder)))


def merged_output(ranks: int) -> float:
    """`slurmddp logs` merges the output of all ranks."""
    return with_run(ranks, ["logs", "big", "--all"])


def last_output(ranks: int) -> float:
    """`slurmddp logs -n 20` of all ranks."""
    return with_run(ranks, ["logs", "big", "--all", "-n", "20"])


def diagnosis(ranks: int) -> float:
    """`slurmddp diagnose` when all ranks failed."""
    return with_run(ranks, ["diagnose", "big"])


def host(rank: int) -> str:
    """Return the name of a rank's node."""
    return f"n{rank // A_NODE + 1}"


def with_run(ranks: int, words: list[str]) -> float:
    """Make a run whose ranks have all printed and failed, and run a command on it; its output is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.named(folder, "big")
        run.path.mkdir()
        append_record(run.submissions, {"job": "17", "time": 1.0, "name": "big"})
        run.batch_log("17").parent.mkdir(parents=True)
        run.batch_log("17").write_text("started\n")
        attempt = run.attempt("17", "0.0")
        attempt.mkdir(parents=True)
        for rank in range(ranks):
            lines = (f"12:{step:02}:00 rank {rank} step {step} loss 0.5\n" for step in range(LINES))
            Path(attempt, f"{rank}.out").write_text("".join(lines))
            Path(attempt, f"{rank}.end").write_text(record_line(rank, host(rank), 76, "Connection reset by peer"))
        command = [sys.executable, "-m", "slurmddp", *words, "--runs-dir", folder]
        return seconds(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False))


PARTS = (claims, host_lists, exit_records, merged_output, last_output, diagnosis)


def measure(sizes: list[int]) -> Iterator[str]:
    """Yield a line for each part: its seconds at each size, and the exponent between the two largest."""
    for part in PARTS:
        times = [part(size) for size in sizes]
        power = math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])
        yield f"{part.__name__:14} {'  '.join(f'{time_s:8.3f}' for time_s in times)}  {power:8.2f}"


def main() -> None:
    """Print the table."""
    sizes = [int(word) for word in sys.argv[1:]] or list(RANKS)
    print(f"{'seconds at':14} {'  '.join(f'{size:8}' for size in sizes)}  exponent")
    for line in measure(sizes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
