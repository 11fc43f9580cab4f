"""How long one job and 1,000 jobs take from the command to the queue, where all nodes are in use.

    python benchmarks/submit.py

The jobs wait, and are cancelled after each measurement. 1,000 calls of sbatch are 100 calls times 10.
"""

import shutil

from cluster import Cluster, running
from launches import OURS, PEERS_STARTS, TRAININGS, Launch, Start
from programs import PEERS_PYTHON, SLURMDDP
from rows import Measure, Row, measured_row, print_rows, seconds

ROUNDS, SWEEPS = 9, 3
JOBS, CALLS = 1000, 100
PROGRAM = TRAININGS / "one_step.py"


def submit_s(cluster: Cluster, start: Start) -> float:
    job = ""

    def submit() -> None:
        nonlocal job
        job = start(cluster, Launch(PROGRAM, ("mark",), nodes=1, ranks=1))

    took = seconds(submit)
    cluster.run(["scancel", job])
    return took


def job_row(cluster: Cluster) -> Row:
    peers = {name: lambda start=start: submit_s(cluster, start) for name, start in PEERS_STARTS.items()}
    ours = OURS["slurmddp, srun"]
    name = "render and submit a job"
    return measured_row(name, "s", lambda: submit_s(cluster, ours), peers, rounds=ROUNDS, warm_up=True)


def commands_s(cluster: Cluster, *commands: list[str]) -> Measure:
    """Return a measure of commands that submit jobs under the name `many`; the jobs are cancelled afterwards."""

    def measure() -> float:
        took = seconds(lambda: [cluster.run(command) for command in commands])
        cluster.run(["scancel", "--name=many"])
        return took

    return measure


def many_row(cluster: Cluster) -> Row:
    by_hand = ["sbatch", "--job-name=many", "--output=/dev/null", "--wrap=true"]
    calls = commands_s(cluster, *[by_hand] * CALLS)

    def sweep_s() -> float:
        words = ["--name", "many", "--set", f"seed=1..{JOBS}", str(PROGRAM), "{seed}"]
        took = commands_s(cluster, [SLURMDDP, "sweep", *words])()
        shutil.rmtree(cluster.folder / "jobs" / "many")
        return took

    peers: dict[str, Measure | str] = {
        "submitit's map_array": commands_s(cluster, [PEERS_PYTHON, str(TRAININGS / "map_array.py"), str(JOBS)]),
        f"sbatch, {CALLS} calls times {JOBS // CALLS}": lambda: calls() * JOBS / CALLS,
        "sbatch --array": commands_s(cluster, [*by_hand, f"--array=1-{JOBS}"]),
        "torchx": "not offered: a job a call",
    }
    return measured_row(f"render and submit a sweep of {JOBS} jobs", "s", sweep_s, peers, rounds=SWEEPS)


def rows() -> list[Row]:
    with running(nodes=1) as cluster:
        cluster.occupy()
        return [job_row(cluster), many_row(cluster)]


if __name__ == "__main__":
    print_rows(rows())
