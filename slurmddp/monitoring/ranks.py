"""Finds the running job that a word names, and asks its nodes for its ranks."""

import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurmddp.attach import run_words
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.monitoring.status import query_jobs
from slurmddp.monitoring.status.job_status import read_spec
from slurmddp.runs.lookup import Target, require_one
from slurmddp.slurm import client, commands
from slurmddp.slurm.environment import user
from slurmddp.watchdog.nodes import look_at_nodes

_LIMIT_S: Final = 30.0
"""For the answer of a node."""

Environ = Mapping[str, str]


class RunningJob(NamedTuple):
    """A job whose ranks can be looked at."""

    job_id: str
    number: int
    """That of Slurm; 0 for a run on this machine."""
    attempt: str
    nodes: tuple[str, ...]
    python: str
    """What runs slurmddp on the nodes."""

    def words(self, module: str, *more: str) -> list[str]:
        """Return the command of a module of the watchdog for this job."""
        return [self.python, *run_words(self.python), f"slurmddp.watchdog.{module}", self.job_id, self.attempt, *more]

    def look(self, nodes: Sequence[str], environ: Environ) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
        """Yield for each of these nodes its name, its ranks, and why it has not answered."""
        return look_at_nodes(self.number, nodes, self.words("look"), environ, limit_s=_LIMIT_S)

    def explain_silence(self, node: str, why: str, words: Sequence[str]) -> str:
        """Return what can be done where no step starts beside the ranks, as where a site forbids `srun --overlap`."""
        by_hand = f"; where you may log in to {node}, type: ssh -t {node} {shlex.quote(shlex.join(words))}"
        return f"no step could look at the ranks of job {self.job_id} on {node} ({why}){by_hand}"


def find_running_job(target: Target, environ: Environ) -> RunningJob:
    """Return the running job that is meant.

    Raises SlurmddpError when none runs; ClusterError when Slurm does not answer or does not know it, and for a job of
    another user; UsageError for a sweep, and for a job of no run.
    """
    found = query_jobs([require_one(target)], environ)
    status = next((one for one in found if one.phase == "running"), found[-1])
    if status.silence:
        raise ClusterError(client.explain_silence(status.silence))
    if status.slurm and status.slurm.user not in ("", user()):
        raise ClusterError(f"job {status.job_id} is of {status.slurm.user}; you can look into your own jobs alone")
    if status.phase != "running":
        if status.phase == "unknown":
            raise ClusterError(f"the state of job {status.job_id} is not known: {status.meaning}")
        raise SlurmddpError(f"job {status.job_id} is {status.state}; a job has ranks only while it runs")
    if status.run is None:
        raise UsageError(f"job {status.job_id} is of no run here; --runs-dir names another folder")
    number, nodes = 0, status.nodes or (socket.gethostname(),)
    if not status.ref.is_local:
        number = int(client.query(commands.list_queue(f"--jobs={status.job_id}", columns="%A"), environ).split()[-1])
    attempt = status.progress.attempt if status.progress else ""
    python = str(read_spec(status.run).get("supervisor-python") or sys.executable)
    return RunningJob(status.job_id, number, attempt or "0.0", nodes, python)
