"""The memory of a node for each of its ranks, with one interpreter a rank (srun) and with one a node (fork).

    python benchmarks/memory.py

Measured is the sum of PSS of all processes of the job after the first step, supervisor included; of one node, since
those of a sandbox would share pages that two machines do not.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cluster import Cluster, running, until
from launches import OURS, PEERS_STARTS, TRAININGS, Launch, Start
from rows import Row, measured_row, print_rows

ROUNDS, LARGE = 3, 32
FORK, SRUN, _ = OURS


def rank_mb(cluster: Cluster, start: Start, ranks: int) -> float:
    """Return the megabytes of a rank while a job of one node is held after its first step."""
    mark, go = cluster.folder / "first-step", cluster.folder / "go"
    for path in (mark, go):
        path.unlink(missing_ok=True)
    job = start(cluster, Launch(TRAININGS / "one_step.py", (str(mark), str(go)), nodes=1, ranks=ranks))
    until(lambda: mark.exists() or not cluster.is_alive(job))
    used = sum(map(pss_mb, processes_of(job)))
    go.touch()
    cluster.wait_for_end(job)
    return used / ranks


def processes_of(job: str) -> Iterator[Path]:
    """Yield the folders in /proc of the processes that a job has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"SLURM_JOB_ID={job}\0".encode() in (folder / "environ").read_bytes():
                yield folder


def pss_mb(process: Path) -> float:
    with suppress(OSError):
        found = re.search(r"^Pss:\s*(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def rows() -> list[Row]:
    with running(nodes=1, cpus_per_node=2 * LARGE) as cluster:
        peers = {
            f"{SRUN}, 8 ranks": lambda: rank_mb(cluster, OURS[SRUN], 8),
            "sbatch and srun, 8 ranks": lambda: rank_mb(cluster, PEERS_STARTS["sbatch and srun"], 8),
        }
        name = f"memory of a node for each of its {LARGE} ranks, fork"
        return [measured_row(name, "MB", lambda: rank_mb(cluster, OURS[FORK], LARGE), peers, rounds=ROUNDS)]


if __name__ == "__main__":
    print_rows(rows())
