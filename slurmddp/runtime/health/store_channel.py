"""How ranks talk during `doctor --in-job`: through a store, so that no collective can hang; and their report."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from slurmddp.runs.files import write_whole
from slurmddp.runs.findings import Finding
from slurmddp.runtime.launch.rank import Rank

ANSWER_LIMIT: Final = timedelta(seconds=60)
"""For a rank to answer; the slowest check, by a rank that cannot reach its peers, takes half of it."""


class StoreChannel:
    """One rank's access to the values of all ranks."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._store = _open_store(rank)
        self._store.set_timeout(ANSWER_LIMIT)
        self.group_store = PrefixStore("group", self._store)
        """For the group that the ranks form."""

    def gather(self, topic: str, value: Any) -> list[Any]:
        """Send a value that JSON can hold; return the values that are not None on rank 0, nothing on the others.

        A topic is used once.
        """
        self._store.set(f"{topic}/{self._rank.rank}", json.dumps(value))
        if not self._rank.is_main:
            return []
        values = (self._receive(f"{topic}/{number}") for number in range(self._rank.world_size))
        return [value for value in values if value is not None]

    def broadcast(self, topic: str, value: Any = None) -> Any:
        """Return rank 0's value on all ranks."""
        if self._rank.is_main:
            self._store.set(topic, json.dumps(value))
        return self._receive(topic)

    def share(self, topic: str, value: Any = None) -> list[Any]:
        """Return on all ranks what `gather` returns on rank 0, when all ranks have called this."""
        return list(self.broadcast(f"{topic}/all", self.gather(topic, value)))

    def _receive(self, topic: str) -> Any:
        return json.loads(self._store.get(topic))


class Report:
    """The findings so far. Rank 0 writes them after each check, because the next one may not end."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._findings: list[Finding] = []

    def add(self, findings: Iterable[Finding], *, complete: bool = False) -> None:
        """Add findings; `complete` says that no check follows."""
        self._findings += findings
        if self._rank.is_main and self._rank.run_dir:
            content = {"complete": complete, "findings": [asdict(finding) for finding in self._findings]}
            write_whole(self._rank.run_dir.findings, json.dumps(content).encode())

    def has_no_error(self, check: str) -> bool:
        """Return whether a check has found nothing that certainly breaks a job."""
        return all(finding.level != "error" for finding in self._findings if finding.check == check)


def _open_store(rank: Rank) -> Store:
    """Return the store of the ranks' own rendezvous, as torch finds it."""
    if rank.world_size == 1:
        return HashStore()
    if rank.init_file:
        return FileStore(str(rank.init_file), rank.world_size)
    store, _, _ = next(rendezvous("env://", timeout=ANSWER_LIMIT))
    return PrefixStore("check", store)
