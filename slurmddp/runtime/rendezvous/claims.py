"""Claims: what each process says about itself in the rendezvous, and the rules that all claims together keep. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slurmddp.errors import RankError
from slurmddp.runtime.launch.rank import list_ranks
from slurmddp.slurm.hostlist import format_ranges
from slurmddp.version import __version__


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a process says about itself."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    host: str
    pid: int

    def __str__(self) -> str:
        """Return host and process id, as messages name a process."""
        return f"{self.host} (pid {self.pid})"


class Claims:
    """The claims that have arrived. Each new one is checked against all others in constant time."""

    def __init__(self) -> None:
        self.arrived: list[Claim] = []
        self.facts: list[str] = []
        """What the preflight of each rank found, in the same order."""
        self._by_rank: dict[int, Claim] = {}
        self._by_local_rank: dict[tuple[str, int, int], Claim] = {}

    def read(self, arrival: Any) -> RankError | None:
        """Add the claim of an arrival; return the error if it cannot be read or contradicts the others."""
        try:
            claim, facts = Claim(**arrival["claim"]), arrival["facts"]
        except (KeyError, TypeError):
            return _version_error(arrival)
        self.facts.append(facts)
        return self.add(claim)

    def add(self, claim: Claim) -> RankError | None:
        """Add a claim; return the error of the first rule that it breaks, None if it breaks none."""
        self.arrived.append(claim)
        rules = (self._check_world_size, self._check_rank, self._check_local_rank)
        return next(filter(None, (rule(claim) for rule in rules)), None)

    def _check_world_size(self, claim: Claim) -> RankError | None:
        """All ranks have the same world size."""
        if claim.world_size == self.arrived[0].world_size:
            return None
        return RankError(f"ranks disagree on the world size: {', '.join(_describe_sizes(self.arrived))}")

    def _check_rank(self, claim: Claim) -> RankError | None:
        """No two processes have the same rank."""
        first = self._by_rank.setdefault(claim.rank, claim)
        return None if first is claim else RankError(f"rank {first.rank} is claimed twice: by {first} and {claim}")

    def _check_local_rank(self, claim: Claim) -> RankError | None:
        """No two processes of a node have the same local rank."""
        first = self._by_local_rank.setdefault((claim.host, claim.node_rank, claim.local_rank), claim)
        if first is claim:
            return None
        return RankError(
            f"ranks {first.rank} and {claim.rank} on {first.host} both have local rank {first.local_rank} "
            f"(pids {first.pid} and {claim.pid})"
        )


def find_contradiction(claims: Iterable[Claim]) -> RankError | None:
    """Return the error of the first claim that contradicts those before it, None if they fit together."""
    return next(filter(None, map(Claims().add, claims)), None)


def refusal_of(claim: Claim, accepted: list[Claim]) -> RankError:
    """Return the error of a process that arrived after rank 0 had accepted the others, as of a duplicate rank."""
    same_rank = [other for other in accepted if other.rank == claim.rank]
    error = find_contradiction([*(same_rank or accepted), claim])
    return error or RankError(f"rank {claim.rank} on {claim} is not among the {len(accepted)} ranks that met")


def ranks_by_host(claims: Iterable[Claim]) -> dict[str, str]:
    """Return the ranks of each host as in `0-3,8`, the hosts in the order of the nodes."""
    by_host: dict[str, list[int]] = {}
    for claim in sorted(claims, key=lambda claim: (claim.node_rank, claim.rank)):
        by_host.setdefault(claim.host, []).append(claim.rank)
    return {host: format_ranges(ranks) for host, ranks in by_host.items()}


def _describe_sizes(claims: list[Claim]) -> Iterator[str]:
    """Yield `4 on n1 (ranks 0, 1)` for each world size and host."""
    groups: dict[tuple[int, str], list[int]] = {}
    for claim in claims:
        groups.setdefault((claim.world_size, claim.host), []).append(claim.rank)
    for (size, host), ranks in groups.items():
        yield f"{size} on {host} ({list_ranks(ranks)})"


def _version_error(arrival: Any) -> RankError:
    """Return the error of an arrival that cannot be read; an older slurmddp sends the claim alone."""
    claim = arrival.get("claim", arrival) if isinstance(arrival, dict) else None
    host = claim.get("host") if isinstance(claim, dict) else None
    return RankError(
        f"a rank{f' on {host}' if host else ''} sent what rank 0 cannot read: versions of slurmddp differ, "
        f"that of rank 0 is {__version__}; give all nodes the same environment"
    )
