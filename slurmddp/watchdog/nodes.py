"""Asks the nodes of a running job for its ranks, by a short step beside them that runs `look`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from slurmddp.errors import ClusterError
from slurmddp.slurm import client, commands

AT_ONCE: Final = 8


def look_at_nodes(
    number: int, nodes: Sequence[str], words: Sequence[str], environ: Mapping[str, str], *, limit_s: float
) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
    """Yield for each node its name, its ranks as `look` prints them, and why it has not answered within `limit_s`.

    `words` is the command of `look`, `number` that of Slurm's job; it is 0 for a run on this machine.
    """

    def ask(node: str) -> tuple[str, list[dict[str, Any]], str]:
        command = commands.run_beside(number, node, *words) if number else words
        try:
            answer = client.ask(command, environ, timeout_s=limit_s)
        except ClusterError as error:
            return node, [], str(error)
        ranks = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
        return node, ranks, answer.reason if answer.status else ""

    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield from pool.map(ask, nodes)
    finally:
        pool.shutdown(cancel_futures=True)
