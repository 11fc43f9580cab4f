"""How long `status` takes with 10,000 jobs: squeue's and sacct's answers are recorded, since no queue here is as long.

    python benchmarks/long_queue.py

In place of both programs stands a `cat` of an answer in their form; everything else is as always.
"""

import os
import tempfile
from pathlib import Path

from programs import ENVIRON, SLURMDDP, run_seconds
from rows import Row, measured_row, print_rows

from slurmddp.runs.layout import RunDir

ROUNDS, JOBS = 5, 10_000
SUBMITTED = '{{"job": "{job}", "time": "2026-11-21T22:00:00+00:00"}}\n'
QUEUED = "slurmddp|id={job}|state=RUNNING|submit=2026-11-21T23:00:00|elapsed=10:00|limit=1-00:00:00|name=r{job}\n"
ENDED = "{job}|COMPLETED|2026-11-21T23:00:00|600|0:0|r{job}\n"


def write_runs(folder: Path) -> None:
    for job in range(1, JOBS + 1):
        run = RunDir.named(str(folder / "jobs"), f"r{job}")
        run.create()
        run.submissions.write_text(SUBMITTED.format(job=job))


def write_programs(folder: Path) -> None:
    """Put programs that print a recorded answer in the place of Slurm's: half of the jobs run, half have ended."""
    half = JOBS // 2
    answers = {
        "squeue": "".join(QUEUED.format(job=job) for job in range(1, half + 1)),
        "sacct": "JobID|State|Submit|ElapsedRaw|ExitCode|JobName\n"
        + "".join(ENDED.format(job=job) for job in range(half + 1, JOBS + 1)),
    }
    (folder / "bin").mkdir()
    for name, answer in answers.items():
        (folder / f"{name}.answer").write_text(answer)
        (folder / "bin" / name).write_text(f"#!/bin/sh\nexec cat {folder}/{name}.answer\n")
        (folder / "bin" / name).chmod(0o755)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        write_runs(folder)
        write_programs(folder)
        environ = {**ENVIRON, "PATH": f"{folder}/bin{os.pathsep}{ENVIRON['PATH']}"}
        return [
            measured_row(
                f"slurmddp status, {JOBS} runs, with recorded answers of squeue and sacct",
                "s",
                lambda: run_seconds([SLURMDDP, "status"], environ, folder),
                {"the recorded answer of squeue alone": lambda: run_seconds(["squeue"], environ, folder)},
                rounds=ROUNDS,
                warm_up=True,
                wanted="at most 2 s",
            )
        ]


if __name__ == "__main__":
    print_rows(rows())
