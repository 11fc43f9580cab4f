"""Cancels jobs for good, also those that Slurm is requeueing, and records it in the runs' events."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.status import JobStatus, query_jobs
from slurmddp.monitoring.status.slurm_answers import task_indices
from slurmddp.outcome import Kind
from slurmddp.runs import events
from slurmddp.runs.events import Author, Cancel
from slurmddp.runs.facts import is_finished
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import Target, find_all_jobs
from slurmddp.slurm import client, commands, environment, queries
from slurmddp.slurm.job_info import JobRef
from slurmddp.slurm.states import UNKNOWN, find_state, may_run
from slurmddp.text import list_some

CANCEL_LIMIT_S: Final = 120.0
"""How long jobs may take to leave their nodes: KillWait and the site's epilog."""
_POLL_S: Final = 1.0
_MAX_NAMED: Final = 5
_COMPLETING: Final = "COMPLETING"
"""After this state a job has ended or is queued again; the state itself does not say which (22.05)."""
_REFUSED: Final = re.compile("denied|permission|unable to contact|connect", re.IGNORECASE)

Environ = Mapping[str, str]


class Cancelled(NamedTuple):
    """A job and its state after it was cancelled."""

    job_id: str
    name: str
    state: str


def unfinished_jobs(
    targets: Sequence[Target],
    environ: Environ,
    notice: Callable[[str], None] = lambda _: None,
    *,
    verb: str = "cancelled",
) -> list[JobStatus]:
    """Return the targets' queued and running jobs, those that depend on others first.

    `notice` gets why a target's last job is not known: a job of another folder, for example, may still run. Raises
    ClusterError when the controller does not answer, and for a job that neither Slurm nor a run knows.
    """
    found, last = query_jobs(targets, environ), {target.jobs[-1] for target in targets}
    for item in found:
        if item.silence:
            raise ClusterError(f"nothing was {verb}: {client.explain_silence(item.silence)}")
        if item.state == UNKNOWN and item.run is None:
            raise ClusterError(f"there is no job {item.job_id}; nothing was {verb}; `slurmddp status` lists jobs")
        if item.state == UNKNOWN and item.job_id in last:
            notice(f"job {item.job_id} of run {item.name}: {item.meaning}")
    once = {item.job_id: item for item in found if may_run(item.state) and not item.outcome.kind.final}
    return list(once.values())[::-1]


def cancel(jobs: Sequence[JobStatus], environ: Environ, notice: Callable[[str], None]) -> list[Cancelled]:
    """Cancel jobs and wait until none is queued or running; a job that was requeued is cancelled again.

    Returns them as they are then. Raises ClusterError when Slurm refuses, does not answer, or a job does not leave its
    nodes.
    """
    names = {_scancel_id(job.job_id): job.name for job in jobs}
    states = dict.fromkeys(names, "")
    left, said, told, deadline = set(names), "", False, time.monotonic() + CANCEL_LIMIT_S
    try:
        while left:
            if active := [job_id for job_id in names if job_id in left and states[job_id] != _COMPLETING]:
                answer = client.ask(commands.cancel(*active), environ)  # that a job has just ended is no error
                said = answer.reason if answer.stderr.strip() else ""
                if answer.status != 0 and _REFUSED.search(said):
                    raise ClusterError(f"scancel: {said}")
            states.update(_query_states(list(left), environ))
            left = {job_id for job_id in left if may_run(states[job_id])}
            if left and not told:
                notice(f"waiting for the end of {_format_jobs(left)}; Ctrl-C ends only the waiting")
                told = True
            if left and time.monotonic() >= deadline:
                raise ClusterError(
                    f"{_format_jobs(left)} not gone after {CANCEL_LIMIT_S:.0f} s; {said or 'type the same again'}"
                )
            time.sleep(_POLL_S if left else 0)
    finally:
        gone = (job for job in jobs if find_state(states[_scancel_id(job.job_id)]).kind is Kind.CANCELLED)
        _record_cancellations(gone, notice)
    return [Cancelled(job_id, name, states[job_id]) for job_id, name in names.items()]


def _record_cancellations(jobs: Iterable[JobStatus], notice: Callable[[str], None]) -> None:
    """Record in the runs who cancelled their jobs, which have ended and write no more.

    Without accounting this is the only record. A job whose last event is a successful end stays done: it was about to
    end, or had ended.
    """
    targets = cache(find_all_jobs)
    for job in jobs:
        for job_id, run in _runs_of(job, targets(job.run).tasks) if job.run else ():
            if is_finished(run, job_id):
                continue
            try:
                run.create()  # a setting whose task has not started has no folder
            except UsageError as error:
                notice(f"job {job_id} is cancelled, and its run has no record of that: {error}")
                continue
            attempt = job.progress.attempt if job.progress else ""
            newest = attempt or next(reversed(run.attempts(job_id)), "")
            author = Author(job=job_id, attempt=newest, host=os.uname().nodename)
            events.append(run, author, Cancel(by=environment.user()))


def _runs_of(job: JobStatus, settings: Mapping[str, RunDir]) -> Iterator[tuple[str, RunDir]]:
    """Yield a job with its run, or each of a sweep's tasks that wait together with the run of its setting.

    None of these is yielded where Slurm shortened the list of the tasks.
    """
    if not job.ref.is_task_list:
        if run := settings.get(job.job_id, job.run):
            yield job.job_id, run
        return
    waited = task_indices(job.job_id) or frozenset()
    for job_id, run in settings.items():
        if (ref := JobRef.parse(job_id)).array_id == job.ref.array_id and ref.task_index in waited:
            yield job_id, run


def _scancel_id(job_id: str) -> str:
    """Return the id for scancel; for tasks that wait together, that of their array."""
    ref = JobRef.parse(job_id)
    return ref.array_id if ref.is_task_list else job_id


def _query_states(job_ids: Sequence[str], environ: Environ) -> dict[str, str]:
    """Return each job's state; of an array that of a task that goes on; CANCELLED for one that Slurm has forgotten."""
    listing = queries.queue(job_ids, environ, timeout_s=client.TIMEOUT_S)
    if listing.silence:
        raise ClusterError(
            f"scancel was sent, but the controller does not say whether the jobs have ended ({listing.silence})"
        )
    found = dict.fromkeys(job_ids, "CANCELLED")
    for job in sorted(listing.jobs, key=lambda job: _state_priority(job.state)):
        found |= dict.fromkeys({job.job_id, job.number} & found.keys(), job.state)
    return found


def _state_priority(state: str) -> int:
    """Return the priority of a state: the highest one of an array's tasks is the state of the array."""
    if state == _COMPLETING:
        return 2
    kind = find_state(state).kind
    if not may_run(state):
        return int(kind is Kind.CANCELLED)
    return 4 if kind is Kind.PENDING else 3


def _format_jobs(job_ids: Iterable[str]) -> str:
    known = sorted(job_ids)
    return f"job{'s' * (len(known) > 1)} {list_some(known, _MAX_NAMED)}"
