"""What the ranks say to each other while the long look goes on: through a store, so that no collective can hang."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from slurmddp.runs.findings import Finding
from slurmddp.runs.layout import write_whole
from slurmddp.runtime.launch.rank import Rank

ANSWER_LIMIT: Final = timedelta(seconds=60)
"""For a rank to answer; the slowest check, by a rank whose peers it cannot reach, takes half of it."""


class Talk:
    """One rank's end."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._store = _open(rank)
        self._store.set_timeout(ANSWER_LIMIT)
        self.group_store = PrefixStore("group", self._store)
        """For the group that the ranks form."""

    def gather(self, topic: str, value: Any) -> list[Any]:
        """Say a value that JSON can hold; return what all ranks said on rank 0, nothing on the others."""
        self._store.set(f"{topic}/{self._rank.rank}", json.dumps(value))
        if not self._rank.is_main:
            return []
        return [json.loads(self._store.get(f"{topic}/{number}")) for number in range(self._rank.world_size)]

    def tell(self, topic: str, value: Any = None) -> Any:
        """Return rank 0's value on all ranks, as soon as it has said it."""
        if self._rank.is_main:
            self._store.set(topic, json.dumps(value))
        return json.loads(self._store.get(topic))

    def say(self, topic: str, value: Any) -> None:
        """Say something to whoever hears."""
        self._store.set(topic, json.dumps(value))

    def hear(self, topic: str) -> Any:
        """Wait for it and return it."""
        return json.loads(self._store.get(topic))

    def meet(self, topic: str) -> None:
        """Return when all ranks have come here."""
        self.gather(f"{topic}/here", value=None)
        self.tell(f"{topic}/all")


class Report:
    """What rank 0 has found so far; kept in the run's folder after each check, for the next one may not end."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._findings: list[Finding] = []

    def add(self, findings: Iterable[Finding], *, complete: bool = False) -> None:
        """Keep these too; `complete` says that nothing follows."""
        self._findings += findings
        if self._rank.is_main and self._rank.run_dir:
            content = {"complete": complete, "findings": [asdict(finding) for finding in self._findings]}
            write_whole(self._rank.run_dir.findings, json.dumps(content).encode())

    def has_no_error(self, check: str) -> bool:
        """Tell whether a check has found nothing that certainly breaks a job."""
        return all(finding.level != "error" for finding in self._findings if finding.check == check)


def _open(rank: Rank) -> Store:
    """Return the store at the ranks' own meeting point, as torch finds it."""
    if rank.world_size == 1:
        return HashStore()
    if rank.init_file:
        return FileStore(str(rank.init_file), rank.world_size)
    store, _, _ = next(rendezvous("env://", timeout=ANSWER_LIMIT))
    return PrefixStore("exam", store)
