"""Cancels jobs so that they stay cancelled, also those that Slurm is putting back; the runs' events tell of it."""

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.status import JobStatus, look, number
from slurmddp.runs import events
from slurmddp.runs.events import Author, Cancel
from slurmddp.runs.history import is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target, tasks
from slurmddp.slurm import client, environment, queries
from slurmddp.slurm.states import phase_of

GONE_S: Final = 120.0
"""How long jobs may take to leave their nodes: KillWait, and what a site's epilog needs."""
_POLL_S: Final = 1.0
_NAMED: Final = 5
_LEAVING: Final = "COMPLETING"
"""A job in it ends, or goes back into the queue: only what comes after it tells (22.05)."""
_REFUSED: Final = re.compile("denied|permission|unable to contact|connect", re.IGNORECASE)

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Cancelled:
    """A job, and what it is after it was cancelled."""

    job_id: str
    name: str
    state: str


def unfinished(
    targets: Sequence[Target], environ: Environ, notice: Callable[[str], None] = lambda _: None
) -> list[JobStatus]:
    """Return the targets' jobs that wait or run, the dependents of others first.

    `notice` is told why a target's last job is not known: that of another folder, for one, may well run. Raises
    ClusterError when the controller does not answer; UsageError for a job that neither it nor a run knows.
    """
    found, last = look(targets, environ), {target.jobs[-1] for target in targets}
    for item in found:
        if item.silence:
            raise ClusterError(f"nothing was cancelled: the controller does not answer ({item.silence})")
        if item.state == "UNKNOWN" and item.run is None:
            raise UsageError(f"there is no job {item.job_id}; nothing was cancelled; `slurmddp status` lists jobs")
        if item.state == "UNKNOWN" and item.job_id in last:
            notice(f"job {item.job_id} of run {item.name}: {item.meaning}")
    once = {item.job_id: item for item in found if _goes_on(item.state)}
    return list(once.values())[::-1]


def cancel(jobs: Sequence[JobStatus], environ: Environ, notice: Callable[[str], None]) -> list[Cancelled]:
    """Cancel jobs and wait until none of them waits or runs; one that goes on is cancelled again.

    Returns them as they are then. Raises ClusterError when Slurm refuses, does not answer, or a job does not leave its
    nodes.
    """
    names = {_whole(job.job_id): job.name for job in jobs}
    states = dict.fromkeys(names, "")
    try:
        _until_gone(names.keys(), states, environ, notice)
    finally:
        _record(job for job in jobs if phase_of(states[_whole(job.job_id)]) == "cancelled")
    return [Cancelled(job_id, name, states[job_id]) for job_id, name in names.items()]


def _until_gone(
    names: Collection[str], states: dict[str, str], environ: Environ, notice: Callable[[str], None]
) -> None:
    """Cancel jobs until none of them waits or runs; `states` has the last of each."""
    left, said, told, deadline = set(names), "", False, time.monotonic() + GONE_S
    while left:
        if active := [job_id for job_id in names if job_id in left and states[job_id] != _LEAVING]:
            said = _order(active, environ)
        states.update(_states(list(left), environ))
        left = {job_id for job_id in left if _goes_on(states[job_id])}
        if left and not told:
            notice(f"waiting until {_list(left)} can no longer come back; Ctrl-C leaves it to Slurm")
            told = True
        if left and time.monotonic() >= deadline:
            raise ClusterError(f"{_list(left)} not gone after {GONE_S:.0f} s; {said or 'type the same again'}")
        time.sleep(_POLL_S if left else 0)


def _record(jobs: Iterable[JobStatus]) -> None:
    """Write down in the runs of jobs that had started who cancelled them; by now no job of theirs writes there.

    The records are all that tells of it where there is no accounting. A run whose last event is a good end stays
    finished: its job was leaving, or had left and was forgotten.
    """
    runs = cache(tasks)
    for job in jobs:
        run = runs(job.run).get(job.job_id, job.run) if job.run else None
        attempt = (job.progress.attempt if job.progress else "") or _newest(run, job.job_id)
        if run and attempt and not is_finished(run):
            author = Author(job=job.job_id, attempt=attempt, host=os.uname().nodename)
            events.append(run, author, Cancel(by=environment.user()))


def _newest(run: RunDir | None, job_id: str) -> str:
    """Return the newest attempt that has a folder; empty where none was begun."""
    return next(reversed(run.attempts(job_id)), "") if run else ""


def _whole(job_id: str) -> str:
    """Return what names a job to scancel: of tasks that wait together the array that they are of."""
    return number(job_id) if "[" in job_id else job_id


def _order(job_ids: Sequence[str], environ: Environ) -> str:
    """Cancel, and return what scancel says to it: of jobs that have just ended it is no error."""
    answer = client.ask(["scancel", *job_ids], environ)
    said = answer.reason if answer.stderr.strip() else ""
    if answer.status != 0 and _REFUSED.search(said):
        raise ClusterError(f"scancel: {said}")
    return said


def _states(job_ids: Sequence[str], environ: Environ) -> dict[str, str]:
    """Return each job's state; of an array that of a task that goes on; CANCELLED for one that Slurm has forgotten."""
    listing = queries.queue(job_ids, environ, timeout_s=client.TIMEOUT_S)
    if listing.silence:
        raise ClusterError(f"the jobs were told to end, but the controller does not say whether ({listing.silence})")
    found = dict.fromkeys(job_ids, "")
    for job in listing.jobs:
        for job_id in {job.job_id, job.number} & set(found):
            if _rank(job.state) >= _rank(found[job_id]):
                found[job_id] = job.state
    return {job_id: state or "CANCELLED" for job_id, state in found.items()}


def _rank(state: str) -> int:
    """Return how much a state says of whether a job, or an array by one of its tasks, goes on."""
    if state == _LEAVING:
        return 2
    if not _goes_on(state):
        return int(phase_of(state) == "cancelled")
    return 4 if phase_of(state) == "queued" else 3


def _goes_on(state: str) -> bool:
    """Tell whether a job can still run, as one can in a state that is new in its Slurm."""
    return phase_of(state) in ("queued", "running") or (phase_of(state) == "unknown" and state not in ("", "UNKNOWN"))


def _list(job_ids: Iterable[str]) -> str:
    known = sorted(job_ids)
    return f"job{'s' * (len(known) > 1)} {', '.join(known[:_NAMED])}" + "..." * (len(known) > _NAMED)
