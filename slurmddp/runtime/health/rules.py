"""Rules that compare the facts of all ranks of a job, and the findings that they give.

findings.json has the level and the texts of each finding; that is all that is read.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from slurmddp.runs.findings import Catalogue, Finding, Level
from slurmddp.runtime.health.facts import MISSING, Facts, group
from slurmddp.text import count, list_some

LEAST_SHM_MB: Final = 256
"""A DataLoader's workers pass batches through /dev/shm; containers have 64 MB of it by default."""
LEAST_SKEW_S: Final = 1.0
"""With a larger skew, records are out of order and the ranks stop at the wrong time before the time limit."""
_LASTING: Final = ("EROFS", "EACCES", "EPERM", "ENOENT", "ENOTDIR")
"""Errors of a folder that do not end by themselves, as those of a full disk or a stale handle do."""
_MOST_LISTED: Final = 4
CATALOGUE: Final = Catalogue(Path(__file__).with_name("findings.json"), json.loads)
finding: Final = CATALOGUE.finding

All = Sequence[Facts]


def judge(ranks: All) -> Iterator[Finding]:
    """Yield the findings of all rules about the ranks of a job."""
    for members in group(ranks, lambda facts: f"{facts.host} {facts.failure}").values():
        if members[0].failure:  # one warning for each node and reason
            yield failed_check(members[0].failure, members[0].host, members[0].rank if len(members) == 1 else None)
    ranks = [facts for facts in ranks if not facts.failure]
    for rule in (_nodes, _versions, _script, _gpus, _affinity) if ranks else ():
        yield from rule(ranks)


def judge_marks(ranks: All, seen: Callable[[int], bool], level: Level) -> Iterator[Finding]:
    """Yield the nodes whose mark in the run's folder is not `seen` on the first node."""
    for facts in ranks:
        if facts.is_leader and not (facts.folder_error or facts.failure) and not seen(facts.node_rank):
            yield finding("folder", "unseen", level=level, host=facts.host, first=ranks[0].host)


def judge_clocks(began: float, ended: float, times: Sequence[tuple[str, float]]) -> Iterator[Finding]:
    """Yield the nodes whose clock is wrong: `times` are their hosts and times.

    The first node read its own clock before and after: at `began` and `ended`. All times in seconds since 1970.
    """
    for host, time_s in times:
        skew_s = time_s - began if time_s < began else max(time_s - ended, 0.0)
        if abs(skew_s) > LEAST_SKEW_S:
            way = "ahead of" if skew_s > 0 else "behind"
            yield finding("clock", "wrong", host=host, skew_s=abs(skew_s), way=way)


def failed_check(error: str, host: str = "", rank: "int | None" = None) -> Finding:
    """Return that the checks failed, and why."""
    what = f"the check of the ranks failed ({error})"
    why = "what it would have found is not known; the job starts all the same"
    return Finding(check="preflight", level="warning", host=host, rank=rank, what=what, why=why)


def _nodes(ranks: All) -> Iterator[Finding]:
    """Yield what is wrong with single nodes, whatever the others have."""
    for facts in ranks:
        if facts.folder_error:
            level: Level = "error" if facts.folder_error in _LASTING else "warning"
            yield finding("folder", "read-only", level=level, host=facts.host, error=facts.folder_error)
        if facts.head:
            yield finding("names", "first", host=facts.host, name=facts.head)
        if facts.is_leader and facts.shm_mb < LEAST_SHM_MB:
            yield finding("shm", "small", host=facts.host, size_mb=facts.shm_mb)


def _versions(ranks: All) -> Iterator[Finding]:
    for name in sorted({name for facts in ranks for name in facts.versions}):
        by_value = group(ranks, lambda facts: facts.versions.get(name, "none"))  # noqa: B023 - called at once
        if len(by_value) > 1:
            yield finding("versions", "differ", host=_odd_host(by_value), name=name, groups=_list_groups(by_value))


def _script(ranks: All) -> Iterator[Finding]:
    """Yield the nodes whose script differs or is missing.

    Python itself reports a script that no rank has, or that a rank cannot read.
    """
    by_digest = group([facts for facts in ranks if facts.digest], lambda facts: facts.digest)
    script = ranks[0].script
    if len(by_digest) <= 1:
        return
    if unreadable := by_digest.get(MISSING):
        host, *others = {facts.host for facts in unreadable}
        ranks_named = _list_members(unreadable)
        yield finding("script", "unreadable", host="" if others else host, script=script, ranks=ranks_named)
    else:
        yield finding("script", "differs", host=_odd_host(by_digest), script=script, groups=_list_groups(by_digest))


def _gpus(ranks: All) -> Iterator[Finding]:
    for host, members in group(ranks, lambda facts: facts.host).items():
        present = dict.fromkeys(gpu for facts in members for gpu in facts.gpus)
        if not present or not any(facts.gpus_asked for facts in members):
            continue
        fewest = min(len(facts.gpus) for facts in members)
        gpus = count(len(present), "GPU")
        if len(present) < len(members):
            listed = list_some(list(present), _MOST_LISTED)
            yield finding("gpus", "shared", host=host, ranks=_list_ranks(members), gpus=gpus, listed=listed)
        elif fewest < len(members):
            yield finding("gpus", "hidden", host=host, ranks=len(members), gpus=count(fewest, "GPU"))
        elif len(present) > len(members):
            numbers = {"most": len(present), "used": len(members)}
            yield finding("gpus", "idle", host=host, gpus=gpus, ranks=count(len(members), "rank"), **numbers)


def _affinity(ranks: All) -> Iterator[Finding]:
    """Yield the nodes whose ranks together may run on fewer CPUs than were asked for; they may share one mask."""
    for host, members in group(ranks, lambda facts: facts.host).items():
        used = len({cpu for facts in members for cpu in facts.cpus})
        wanted = sum(facts.cpus_wanted for facts in members)
        if used < min(wanted, members[0].cpus_of_node):
            ranks_named, cpus = count(len(members), "rank"), count(used, "CPU")
            yield finding("affinity", "narrow", host=host, ranks=ranks_named, cpus=cpus, wanted=wanted)


def _odd_host(groups: Mapping[str, All]) -> str:
    """Return the host of the smallest group; of two groups of the same size, the one without rank 0."""
    odd = min(groups.values(), key=lambda members: (len(members), members[0].rank == 0))
    return odd[0].host


def _list_groups(groups: Mapping[str, All]) -> str:
    return ", ".join(f"{value} on {_list_members(members)}" for value, members in groups.items())


def _list_members(members: All) -> str:
    """Return `ranks 0, 1 on n1, 2, 3 on n2`; a long list is cut."""
    by_host = group(members, lambda facts: facts.host)
    parts = [f"{_list_ranks(some)} on {host}" for host, some in by_host.items()]
    return f"rank{'s' if len(members) > 1 else ''} {list_some(parts, _MOST_LISTED)}"


def _list_ranks(members: All) -> str:
    return list_some([str(facts.rank) for facts in members], _MOST_LISTED)
