"""The supervisor's queries and orders to Slurm, through slurmddp.slurm.client."""

import re
from collections.abc import Mapping
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands, parsing, queries
from slurmddp.slurm.client import RefusedError
from slurmddp.slurm.environment import user
from slurmddp.slurm.job_info import JobInfo

_REFUSED: Final = re.compile("denied|permi|disabled|invalid", re.IGNORECASE)
"""Words of a refusal; every other error may come from a controller that restarts."""

_DEPENDENCY_STATE: Final = re.compile(r"\([a-z_]+\)")
"""What squeue adds to each condition: `afterok:17(unfulfilled)`."""


class Controller:
    """Slurm, for the supervisor of one job."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def job(self, job_id: str) -> "JobInfo | None":
        """Return a job; None when Slurm does not know it.

        Raises ClusterError when it does not answer.
        """
        answer = client.ask(commands.show("job", job_id), self._environ)
        found = parsing.parse_show(answer.stdout) if answer.status == 0 else []
        if not found and "Invalid job id" not in answer.stderr:
            raise ClusterError(answer.reason)
        return found[0] if found else None

    def requeue(self, job_id: str) -> None:
        """Requeue the job; a cancelled job stays cancelled.

        Raises RefusedError when Slurm refuses, ClusterError when it does not answer.
        """
        self._order(commands.requeue(job_id))

    def cancel(self, job_id: str) -> None:
        """Cancel the job. Raises as `requeue` does."""
        self._order(commands.cancel(job_id))

    def update(self, job_id: str, key: str, value: str) -> None:
        """Change a value of a job, as ExcNodeList of a queued one. Raises as `requeue` does."""
        self._order(commands.update(job_id, key, value))

    def release_dependents(self, job_id: str) -> list[str]:
        """Let the user's queued jobs that wait for the success of a job wait for its end; return their ids.

        Raises as `requeue` does.
        """
        waiting = commands.list_queue("--states=PENDING", f"--user={user()}", columns="%F %E")
        released = []
        for line in client.try_query(waiting, self._environ).splitlines():
            dependent, _, condition = line.partition(" ")
            condition = _DEPENDENCY_STATE.sub("", condition)
            later = re.sub(rf"\bafterok:{job_id}(?![\w+])", f"afterany:{job_id}", condition)
            if later != condition:
                self._order(commands.update(dependent, "Dependency", later))
                released.append(dependent)
        return released

    def lost_nodes(self, host_list: str) -> tuple[str, ...]:
        """Return those nodes that are down, failing, or do not respond; none when Slurm does not say."""
        return queries.lost_nodes(host_list, self._environ, timeout_s=client.TIMEOUT_S)

    def partition_nodes(self, partition: str) -> tuple[str, ...]:
        """Return the names of the nodes of a partition; none when Slurm does not say."""
        listed = commands.list_nodes("--Node", f"--partition={partition}")
        return tuple(dict.fromkeys(client.try_query(listed, self._environ).split()))

    def address(self, node: str) -> str:
        """Return NodeAddr of a node; empty when Slurm does not say."""
        found = re.search(r"(?<!\S)NodeAddr=(\S+)", client.try_query(commands.show("nodes", node), self._environ))
        return found[1] if found else ""

    def script_digest(self, job_id: str) -> "str | None":
        """Return the sha256 of the script that Slurm holds for a job; None when it shows none."""
        return queries.script_digest(job_id, self._environ)

    def send_signal(self, target: str, signal: str) -> None:
        """Send a signal, as `KILL`, to the processes of a step, or of all steps of a job. Raises as `requeue` does."""
        self._order(commands.cancel(target, signal=signal))

    def _order(self, command: list[str]) -> None:
        answer = client.ask(command, self._environ)
        if answer.status != 0:
            refused = _REFUSED.search(answer.stderr + answer.stdout)
            raise RefusedError(answer.reason) if refused else ClusterError(answer.reason)
