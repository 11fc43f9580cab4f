"""How soon the ranks of a job have taken their first step, from the first process of the job on a node.

    python benchmarks/first_step.py

Each round submits a small DDP program in every way; Slurm's Prolog, which runs before any script, notes the beginning.
"""

from cluster import Cluster, running, until
from launches import OURS, PEERS_STARTS, TRAININGS, Launch, Start
from rows import Row, Samples, in_turn, print_rows, span

ROUNDS = 3
FORK, SRUN, TORCHRUN = OURS
LARGE = 32


def seconds_to_first_step(cluster: Cluster, start: Start, ranks: int) -> float:
    mark = cluster.folder / "first-step"
    mark.unlink(missing_ok=True)
    job = start(cluster, Launch(TRAININGS / "one_step.py", (str(mark),), nodes=2, ranks=ranks))
    until(lambda: mark.exists() or not cluster.is_alive(job))
    took = float(mark.read_text()) - cluster.begin_of(job)
    cluster.wait_for_end(job)
    return took


def measure(cluster: Cluster, ranks: int, starts: dict[str, Start]) -> dict[str, Samples]:
    measures = {
        name: lambda start=start: seconds_to_first_step(cluster, start, ranks) for name, start in starts.items()
    }
    return in_turn(measures, ROUNDS)


def compared(ranks: int, taken: dict[str, Samples], ours: str, *others: str, wanted: str = "") -> Row:
    name = f"start to first step, 2 x {ranks}, {ours.removeprefix('slurmddp, ')}"
    return Row(name=name, unit="s", ours=taken[ours], peers={each: taken[each] for each in others}, wanted=wanted)


def small_rows(cluster: Cluster) -> list[Row]:
    taken = measure(cluster, 1, {**OURS, **PEERS_STARTS})
    return [compared(1, taken, ours, *PEERS_STARTS) for ours in (SRUN, FORK)]


def node_rows(taken: dict[str, Samples]) -> list[Row]:
    return [
        compared(8, taken, FORK, SRUN, *PEERS_STARTS, wanted=f"at most 0.12 of {SRUN}"),
        compared(8, taken, SRUN, "sbatch and srun", "submitit"),
        compared(8, taken, TORCHRUN, "srun torchrun", "torchx"),
    ]


def large_row(cluster: Cluster, at_eight: dict[str, Samples]) -> Row:
    """Measure fork alone: two cores would import torch 64 times for each of the others."""
    taken = measure(cluster, LARGE, {FORK: OURS[FORK]})
    others = {
        name: f"not measured here: {span(samples)} s at 2 x 8 already"
        for name, samples in at_eight.items()
        if name != FORK
    }
    return Row(name=f"start to first step, 2 x {LARGE}, fork", unit="s", ours=taken[FORK], peers=others)


def rows() -> list[Row]:
    with running(nodes=2, cpus_per_node=2 * LARGE) as cluster:
        small = small_rows(cluster)
        at_eight = measure(cluster, 8, {**OURS, **PEERS_STARTS})
        return [*small, *node_rows(at_eight), large_row(cluster, at_eight)]


if __name__ == "__main__":
    print_rows(rows())
