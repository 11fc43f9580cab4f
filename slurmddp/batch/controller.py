"""The supervisor's queries and orders to Slurm, through slurmddp.slurm.client."""

from __future__ import annotations
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands, parsing, queries
from slurmddp.slurm.client import RefusedError
from slurmddp.slurm.environment import user
from slurmddp.slurm.job_info import JobInfo

_REFUSED: Final = re.compile("denied|permi|disabled|invalid", re.IGNORECASE)
"""Words of a refusal; every other error may come from a controller that restarts."""

_DEPENDENCY_STATE: Final = re.compile(r"\([a-z_]+\)")
"""What squeue adds to each condition: `afterok:17(unfulfilled)`."""

BESIDE_S: Final = 10.0
"""For a step beside the ranks: where it takes longer, the node does not answer."""


class Controller:
    """Slurm, for the supervisor of one job."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def job(self, job_id: str) -> JobInfo | None:
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

    def exclude(self, job_id: str, nodes: str) -> None:
        """Set the excluded nodes of a queued job. Raises as `requeue` does."""
        self._order(commands.update(job_id, "ExcNodeList", nodes))

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

    def hostnames(self, host_list: str) -> tuple[str, ...]:
        """Return the names of a host list; none when Slurm does not say."""
        return tuple(client.try_query(commands.show("hostnames", host_list), self._environ).split())

    def address(self, node: str) -> str:
        """Return NodeAddr of a node; empty when Slurm does not say."""
        found = re.search(r"(?<!\S)NodeAddr=(\S+)", client.try_query(commands.show("nodes", node), self._environ))
        return found[1] if found else ""

    def script_digest(self, job_id: str) -> str | None:
        """Return the sha256 of the script that Slurm holds for a job; None when it shows none."""
        return queries.script_digest(job_id, self._environ)

    def signal_step(self, number: int, step: str, signal: str) -> None:
        """Send a signal, as `KILL`, to the ranks of a step. Raises as `requeue` does."""
        self._order(commands.cancel(f"{number}.{step}", signal=signal))

    def look(
        self, number: int, nodes: Sequence[str], words: Sequence[str]
    ) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
        """Yield for each of these nodes its name, its ranks, and why it has not answered; `words` runs `look`."""
        from slurmddp.watchdog.nodes import look_at_nodes  # noqa: PLC0415 - threads, which few jobs need

        return look_at_nodes(number, nodes, words, self._environ, limit_s=BESIDE_S)

    def _order(self, command: list[str]) -> None:
        answer = client.ask(command, self._environ)
        if answer.status != 0:
            refused = _REFUSED.search(answer.stderr + answer.stdout)
            raise RefusedError(answer.reason) if refused else ClusterError(answer.reason)
