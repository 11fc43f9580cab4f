"""A Slurm of its own for a benchmark, and a folder that its jobs share. Starts processes, writes a temporary folder."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from programs import ENVIRON, run

from slurmddp import sandbox

Found = TypeVar("Found")

PROLOG = """#!/bin/sh
date +%s.%N >>{folder}/$SLURM_JOB_ID.begin
"""
"""Slurm runs it on a node before the first process of a job, whoever wrote the job's script."""
WAIT_S = 300
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "")


@dataclass(frozen=True)
class Cluster:
    """A sandbox that is up, and what its jobs are given."""

    sandbox: sandbox.Sandbox
    folder: Path
    """The working directory of its jobs."""

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a shell that uses it."""
        return {**ENVIRON, **self.sandbox.environment()}

    def run(self, command: Sequence[str]) -> str:
        """Return what a program prints that is run in the folder."""
        return run(command, self.environ, self.folder)

    def occupy(self) -> str:
        """Submit a job that has all nodes from now on, so that all other jobs wait; return its id."""
        nodes = f"--nodes={len(self.sandbox.plan.node_names)}"
        words = ["sbatch", "--parsable", "--exclusive", nodes, "--output=/dev/null", "--wrap=sleep infinity"]
        job = self.run(words).strip()
        until(lambda: self.state(job) == "RUNNING")
        return job

    def state(self, job: str) -> str:
        """Return a job's state; of a job with several parts, that of the first."""
        return (self.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]).split() or [""])[0]

    def wait_for_end(self, job: str) -> str:
        """Return the state in which a job has ended."""
        until(lambda: not self.is_alive(job))
        return self.state(job)

    def is_alive(self, job: str) -> bool:
        """Tell whether a job waits, runs, or has processes that are being ended."""
        return self.state(job) not in ENDED

    def begin_of(self, job: str) -> float:
        """Return when the first node began with a job, in seconds since 1970."""
        return min(map(float, (self.folder / f"{job}.begin").read_text().split()))


@contextmanager
def running(*, nodes: int = 2, cpus_per_node: int = 16, slurm_conf: tuple[str, ...] = ()) -> Iterator[Cluster]:
    """Start a cluster without GPUs; end it, and remove its folder, at the end of the `with`."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        prolog = folder / "prolog"
        prolog.write_text(PROLOG.format(folder=folder))
        prolog.chmod(0o755)
        plan = sandbox.Plan(
            name=f"benchmark-{os.getpid()}",
            nodes=nodes,
            gpus_per_node=0,
            cpus_per_node=cpus_per_node,
            slurm_conf=(f"Prolog={prolog}", *slurm_conf),
        )
        up = sandbox.up(plan, die_with_parent=True)
        try:
            yield Cluster(up, folder)
        finally:
            up.down()


def until(condition: Callable[[], Found], timeout_s: float = WAIT_S, pause_s: float = 0.1) -> Found:
    """Return what the condition returns once that is true; raise TimeoutError if it is not within the time."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:.0f} s")
        time.sleep(pause_s)
    return found
