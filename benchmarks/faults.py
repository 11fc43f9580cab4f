"""How soon a training is saved when its job is preempted, and goes on after kill -9 of a rank.

    python benchmarks/faults.py

2 nodes with a rank each. A step lasts 0.05 s, and the ranks save each 20 steps.
"""

import time
from functools import partial
from pathlib import Path

from cluster import Cluster, running, until
from launches import OURS, TRAININGS, Launch, Start, by_srun, by_submitit, by_torchrun
from rows import Row, measured_row, print_rows

from slurmddp.runtime.checkpoint.store import MANIFEST

ROUNDS = 3
ENDED_IN_VAIN_S = 90
FORK, SRUN, _ = OURS


def start_training(cluster: Cluster, start: Start, program: str) -> tuple[str, Path]:
    """Start a training in a folder of its own; return the job and the folder when it has taken ten steps."""
    folder = cluster.folder / f"training-{len(list(cluster.folder.glob('training-*')))}"
    folder.mkdir()
    job = start(cluster, Launch(TRAININGS / program, (str(folder),), nodes=2, ranks=1, partition="low"))
    until(lambda: len(steps(folder)) >= 10)  # noqa: PLR2004 enough to be in the loop
    return job, folder


def steps(folder: Path) -> list[float]:
    """Return the times of rank 0's steps."""
    path = folder / "steps.0"
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


def kill_a_rank(folder: Path) -> float:
    """Let rank 1 end by kill -9; return when it did, in seconds since 1970."""
    (folder / "kill").touch()
    killed = folder / "killed"
    until(lambda: killed.exists() and killed.read_text())
    return float(killed.read_text())


def back_after_kill_s(cluster: Cluster, start: Start, program: str) -> float:
    """Return the seconds from kill -9 of rank 1 to the first step of the next start."""
    job, folder = start_training(cluster, start, program)
    killed_at = kill_a_rank(folder)
    until(lambda: steps(folder)[-1] > killed_at + 1.0)  # a step that was under way ends sooner
    took = min(at for at in steps(folder) if at > killed_at + 1.0) - killed_at
    cluster.run(["scancel", job])
    cluster.wait_for_end(job)
    return took


def end_after_kill(cluster: Cluster, start: Start) -> str:
    """Kill a rank of a peer that does not start it again; return what became of the job."""
    job, folder = start_training(cluster, start, "plain.py")
    kill_a_rank(folder)
    try:
        until(lambda: not cluster.is_alive(job), ENDED_IN_VAIN_S)
    except TimeoutError:
        cluster.run(["scancel", job])
        return f"no: nothing was started again, and the job still ran after {ENDED_IN_VAIN_S} s"
    return f"no: the job ends ({cluster.state(job)})"


def kill_rows(cluster: Cluster) -> list[Row]:
    torchrun = partial(by_torchrun, restarts=3)
    ended = {
        "sbatch and srun": end_after_kill(cluster, by_srun),
        "submitit": end_after_kill(cluster, by_submitit),
    }
    return [
        measured_row(
            f"kill -9 of a rank to the next step, 2 x 1, {name.removeprefix('slurmddp, ')}",
            "s",
            partial(back_after_kill_s, cluster, OURS[name], "resumable.py"),
            {
                "torchrun --max-restarts=3": partial(back_after_kill_s, cluster, torchrun, "plain.py"),
                **ended,
            },
            rounds=ROUNDS,
        )
        for name in (FORK, SRUN)
    ]


def preempt(cluster: Cluster) -> float:
    """Submit a job that takes all nodes from those of partition low; return when, in seconds since 1970."""
    now = time.time()
    cluster.run(["sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=true"])
    return now


def saved_after_notice_s(cluster: Cluster, start: Start) -> float:
    """Return the seconds from the submission of the job that preempts to a checkpoint that is durable."""
    job, _ = start_training(cluster, start, "resumable.py")
    preempted_at = preempt(cluster)
    pattern = f"run-*/checkpoints/*/{MANIFEST}"
    manifests = until(lambda: _newer(cluster.folder / "jobs", pattern, preempted_at))
    took = min(path.stat().st_mtime for path in manifests) - preempted_at
    cluster.run(["scancel", job])
    cluster.wait_for_end(job)
    return took


def _newer(folder: Path, pattern: str, since: float) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.stat().st_mtime > since]


def end_after_notice(cluster: Cluster, start: Start) -> str:
    """Preempt a peer's training; return what it did with the notice, by its own output."""
    job, _ = start_training(cluster, start, "plain.py")
    preempt(cluster)
    until(lambda: cluster.state(job) != "RUNNING")
    output = "".join(path.read_text() for path in cluster.folder.glob(f"submitit/{job}*.*"))
    bypassed = next((line for line in output.splitlines() if "Bypassing signal" in line), "")
    cluster.run(["scancel", job])
    cluster.wait_for_end(job)
    return f"no: {bypassed.rpartition(' - ')[2].strip() or 'the ranks end'}, and only earlier checkpoints are left"


def notice_row(cluster: Cluster) -> Row:
    return measured_row(
        "preemption to durable state, 2 x 1, fork",
        "s",
        partial(saved_after_notice_s, cluster, OURS[FORK]),
        {
            "sbatch and srun": end_after_notice(cluster, by_srun),
            "submitit": end_after_notice(cluster, by_submitit),
        },
        rounds=ROUNDS,
    )


def rows() -> list[Row]:
    with running(nodes=2) as cluster:
        return [notice_row(cluster), *kill_rows(cluster)]


if __name__ == "__main__":
    print_rows(rows())
