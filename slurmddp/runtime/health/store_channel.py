"""How ranks talk during `doctor --in-job`: through a store, so that no collective can hang."""

import json
from datetime import timedelta
from typing import Any, Final

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from slurmddp.runtime.launch.rank import Rank

ANSWER_LIMIT: Final = timedelta(seconds=60)
"""For a rank to answer; the slowest check, by a rank that cannot reach its peers, takes half of it."""


class StoreChannel:
    """One rank's access to the values of all ranks."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        store: Store = HashStore()
        if rank.init_file and rank.world_size > 1:
            store = FileStore(str(rank.init_file), rank.world_size)
        elif rank.world_size > 1:  # the store of the ranks' own rendezvous, as torch finds it
            store = PrefixStore("check", next(rendezvous("env://", timeout=ANSWER_LIMIT))[0])
        self._store = store
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
