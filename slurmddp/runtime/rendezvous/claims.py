"""The rules that the claims of all ranks together keep: who each says it is in the rendezvous. Pure."""

from collections.abc import Iterable
from typing import Any

from slurmddp.errors import RankError
from slurmddp.runtime.health.facts import Facts, group
from slurmddp.runtime.launch.rank import list_ranks
from slurmddp.slurm.hostlist import format_ranges
from slurmddp.version import __version__


class Claims:
    """The claims that have arrived. Each new one is checked against all others in constant time."""

    def __init__(self) -> None:
        self.arrived: list[Facts] = []
        self._by_rank: dict[int, Facts] = {}
        self._by_local_rank: dict[tuple[str, int, int], Facts] = {}

    def read(self, arrival: Any) -> "RankError | None":
        """Add the claim of an arrival; return the error if it cannot be read or contradicts the others."""
        try:
            claim = Facts(**arrival)
        except TypeError:
            host = arrival.get("host") if isinstance(arrival, dict) else None
            return RankError(
                f"a rank{f' on {host}' if host else ''} sent what rank 0 cannot read: versions of slurmddp differ, "
                f"that of rank 0 is {__version__}; give all nodes the same environment"
            )
        return self.add(claim)

    def add(self, claim: Facts) -> "RankError | None":
        """Add a claim; return the error of the first rule that it breaks, None if it breaks none.

        All ranks have the same world size, no two processes the same rank, no two of a node the same local rank.
        """
        self.arrived.append(claim)
        if claim.world_size != self.arrived[0].world_size:
            groups = group(self.arrived, lambda each: f"{each.world_size} on {each.host}")
            sizes = ", ".join(f"{size} ({list_ranks(each.rank for each in some)})" for size, some in groups.items())
            return RankError(f"ranks disagree on the world size: {sizes}")
        first = self._by_rank.setdefault(claim.rank, claim)
        if first is not claim:
            return RankError(f"rank {first.rank} is claimed twice: by {first.process} and {claim.process}")
        first = self._by_local_rank.setdefault((claim.host, claim.node_rank, claim.local_rank), claim)
        if first is not claim:
            return RankError(
                f"ranks {first.rank} and {claim.rank} on {first.host} both have local rank {first.local_rank} "
                f"(pids {first.pid} and {claim.pid})"
            )
        return None


def ranks_by_host(claims: Iterable[Facts]) -> dict[str, str]:
    """Return the ranks of each host as in `0-3,8`, the hosts in the order of the nodes."""
    by_host = group(sorted(claims, key=lambda claim: (claim.node_rank, claim.rank)), lambda claim: claim.host)
    return {host: format_ranges([claim.rank for claim in some]) for host, some in by_host.items()}
