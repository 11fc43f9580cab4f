"""Rules that compare the facts of all ranks of a job, and the findings that they give. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from slurmddp.runs.findings import Finding, Level
from slurmddp.runtime.health.facts import MISSING, SHM, Facts
from slurmddp.text import count, list_some

LEAST_SHM_MB: Final = 256
"""A DataLoader's workers pass batches through /dev/shm; containers have 64 MB of it by default."""
LEAST_SKEW_S: Final = 1.0
"""With a larger skew, records are out of order and the ranks stop at the wrong time before the time limit."""
_LASTING: Final = ("EROFS", "EACCES", "EPERM", "ENOENT", "ENOTDIR")
"""Errors of a folder that do not end by themselves, as those of a full disk or a stale handle do."""
_MOST_LISTED: Final = 4

All = Sequence[Facts]
_warning = partial(Finding, level="warning")


def judge(ranks: All) -> Iterator[Finding]:
    """Yield the findings of all rules about the ranks of a job."""
    for members in _groups(ranks, lambda facts: f"{facts.host} {facts.failure}").values():
        if members[0].failure:  # one warning for each node and reason
            yield failed_check(members[0].failure, members[0].host, members[0].rank if len(members) == 1 else None)
    ranks = [facts for facts in ranks if not facts.failure]
    for rule in (_folder, _names, _versions, _script, _gpus, _affinity, _shared_memory) if ranks else ():
        yield from rule(ranks)


def judge_marks(ranks: All, seen: Callable[[int], bool], level: Level) -> Iterator[Finding]:
    """Yield the nodes whose mark in the run's folder is not `seen` on the first node."""
    for facts in ranks:
        if facts.is_leader and not (facts.folder_error or facts.failure) and not seen(facts.node_rank):
            what = f"what it wrote into the run's folder is not seen on {ranks[0].host}"
            why = "records and checkpoints of one node are lost for the others"
            advice = "put the run's folder on a file system that all nodes share, by --runs-dir"
            yield Finding(check="folder", level=level, host=facts.host, what=what, why=why, advice=advice)


def judge_clocks(began: float, ended: float, times: Sequence[tuple[str, float]]) -> Iterator[Finding]:
    """Yield the nodes whose clock is wrong: `times` are their hosts and times.

    The first node read its own clock before and after: at `began` and `ended`. All times in seconds since 1970.
    """
    for host, time_s in times:
        skew_s = time_s - began if time_s < began else max(time_s - ended, 0.0)
        if abs(skew_s) > LEAST_SKEW_S:
            what = f"its clock is {abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} the first node's"
            why = "ranks stop at the wrong time before the time limit, and records are out of order"
            advice = "tell the site: NTP does not work there"
            yield _warning(check="clock", host=host, what=what, why=why, advice=advice)


def failed_check(error: str, host: str = "", rank: "int | None" = None) -> Finding:
    """Return that the checks failed, and why."""
    what = f"the check of the ranks failed ({error})"
    why = "what it would have found is not known; the job starts all the same"
    return _warning(check="preflight", host=host, rank=rank, what=what, why=why)


def name_finding(host: str, name: str, what: str) -> Finding:
    """Return the warning of a host on which the name of another node does not resolve."""
    why = "programs that use the name fail; slurmddp uses the address that Slurm has"
    advice = f"tell the site: {name} belongs into DNS or /etc/hosts"
    return _warning(check="names", host=host, what=what, why=why, advice=advice)


def _folder(ranks: All) -> Iterator[Finding]:
    for facts in ranks:
        if facts.folder_error:
            level: Level = "error" if facts.folder_error in _LASTING else "warning"
            what = f"the run's folder cannot be written to ({facts.folder_error})"
            why = "no checkpoint, and no record of how the ranks end, can be kept"
            advice = "choose a folder that all nodes can write to, by --runs-dir, or leave the node out by --exclude"
            yield Finding(check="folder", level=level, host=facts.host, what=what, why=why, advice=advice)


def _names(ranks: All) -> Iterator[Finding]:
    for facts in ranks:
        if facts.head:
            what = f"the name of the first node, {facts.head}, does not resolve, or only to {facts.host} itself"
            yield name_finding(facts.host, facts.head, what)


def _shared_memory(ranks: All) -> Iterator[Finding]:
    for facts in ranks:
        if facts.is_leader and facts.shm_mb < LEAST_SHM_MB:
            what = f"{SHM} has {facts.shm_mb} MB"
            why = "workers of a DataLoader pass batches through it, and die of `Bus error` when it is full"
            advice = "use num_workers=0, or start the container with a larger one (--shm-size)"
            yield _warning(check="shm", host=facts.host, what=what, why=why, advice=advice)


def _versions(ranks: All) -> Iterator[Finding]:
    for name in sorted({name for facts in ranks for name in facts.versions}):
        by_value = _groups(ranks, lambda facts: facts.versions.get(name, "none"))  # noqa: B023 - called at once
        if len(by_value) > 1:
            what = f"{name} differs: {_list_groups(by_value)}"
            why = "ranks of different versions can compute differently, or wait for each other forever"
            advice = "give all nodes the same environment, by --venv, --conda or --python on a shared file system"
            yield _warning(check="versions", host=_odd_host(by_value), what=what, why=why, advice=advice)


def _script(ranks: All) -> Iterator[Finding]:
    """Yield the nodes whose script differs or is missing.

    Python itself reports a script that no rank has, or that a rank cannot read.
    """
    by_digest = _groups([facts for facts in ranks if facts.digest], lambda facts: facts.digest)
    script = ranks[0].script
    if len(by_digest) <= 1:
        return
    level: Level = "warning"
    if unreadable := by_digest.get(MISSING):
        host, *others = {facts.host for facts in unreadable}
        level, host = "error", "" if others else host
        what, why = f"{script} cannot be read by {_list_members(unreadable)}", "these ranks have nothing to run"
        advice = "put it on a file system that all nodes share"
    else:
        host, what = _odd_host(by_digest), f"{script} differs: {_list_groups(by_digest)} (sha256)"
        why = "the ranks would run different programs"
        advice = "put it on a file system that all nodes share, or wait until all nodes see your last change"
    yield Finding(check="script", level=level, host=host, what=what, why=why, advice=advice)


def _gpus(ranks: All) -> Iterator[Finding]:
    for host, members in _groups(ranks, lambda facts: facts.host).items():
        present = dict.fromkeys(gpu for facts in members for gpu in facts.gpus)
        if not present or not any(facts.gpus_asked for facts in members):
            continue
        fewest = min(len(facts.gpus) for facts in members)
        gpus = count(len(present), "GPU")
        level: Level = "warning"
        if len(present) < len(members):
            what = f"ranks {_list_ranks(members)} share {gpus}: {list_some(list(present), _MOST_LISTED)}"
            why = "NCCL refuses two ranks on one GPU, and the memory is shared"
            advice = "give --gpus-per-node as many as ranks, and leave CUDA_VISIBLE_DEVICES to Slurm"
        elif fewest < len(members):
            what = f"its {len(members)} ranks see {count(fewest, 'GPU')} each"
            why = "a program that takes the GPU of its local rank ends by `invalid device ordinal`"
            advice = "ask by --gpus-per-node, not for GPUs per task"
        elif len(present) > len(members):
            what, level = f"{gpus} for {count(len(members), 'rank')}", "note"
            why = "those beyond one a rank stay idle, unless the program takes several"
            advice = f"--ntasks-per-node {len(present)} uses all, --gpus-per-node {len(members)} asks for no more"
        else:
            continue
        yield Finding(check="gpus", level=level, host=host, what=what, why=why, advice=advice)


def _affinity(ranks: All) -> Iterator[Finding]:
    """Yield the nodes whose ranks together may run on fewer CPUs than were asked for; they may share one mask."""
    for host, members in _groups(ranks, lambda facts: facts.host).items():
        used = len({cpu for facts in members for cpu in facts.cpus})
        wanted = sum(facts.cpus_wanted for facts in members)
        if used < min(wanted, members[0].cpus_of_node):
            what = f"its {count(len(members), 'rank')} may run on {count(used, 'CPU')} of the {wanted} asked for"
            why = "loaders and threads of all its ranks share what is left"
            advice = (
                "start it by the batch script of slurmddp, whose srun repeats --cpus-per-task; leave --cpu-bind "
                "and SLURM_CPU_BIND to Slurm"
            )
            yield _warning(check="affinity", host=host, what=what, why=why, advice=advice)


def _groups(ranks: All, key: Callable[[Facts], str]) -> dict[str, list[Facts]]:
    found: dict[str, list[Facts]] = {}
    for facts in ranks:
        found.setdefault(key(facts), []).append(facts)
    return found


def _odd_host(groups: Mapping[str, All]) -> str:
    """Return the host of the smallest group; of two groups of the same size, the one without rank 0."""
    odd = min(groups.values(), key=lambda members: (len(members), members[0].rank == 0))
    return odd[0].host


def _list_groups(groups: Mapping[str, All]) -> str:
    return ", ".join(f"{value} on {_list_members(members)}" for value, members in groups.items())


def _list_members(members: All) -> str:
    """Return `ranks 0, 1 on n1, 2, 3 on n2`; a long list is cut."""
    by_host = _groups(members, lambda facts: facts.host)
    parts = [f"{_list_ranks(some)} on {host}" for host, some in by_host.items()]
    return f"rank{'s' if len(members) > 1 else ''} {list_some(parts, _MOST_LISTED)}"


def _list_ranks(members: All) -> str:
    return list_some([str(facts.rank) for facts in members], _MOST_LISTED)
