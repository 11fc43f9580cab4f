"""The allocations of a run: when each start of a job by Slurm had how many nodes. Slurm is not asked."""

import math
from typing import NamedTuple

from slurmddp.outcome import Kind
from slurmddp.runs.facts import Attempt, Job, Run
from slurmddp.slurm.hostlist import try_expand
from slurmddp.slurm.job_info import JobRef


class Allocation(NamedTuple):
    """One start of a job by Slurm, and the time in which it had its nodes."""

    job_id: str
    begin: float
    """Seconds since 1970; by the controller's clock where that is known."""
    end: float
    """When the job ended or went back to the queue; the time of its last event where that is not known."""
    nodes: int
    """1 if it is not known."""
    attempts: tuple[Attempt, ...]
    """The starts of its ranks, the oldest first; none before their first event."""

    @property
    def node_hours(self) -> float:
        """How long the job had its nodes, in hours, times the nodes."""
        return (self.end - self.begin) * self.nodes / 3600


def list_allocations(run: Run, *, now: float) -> list[Allocation]:
    """Return the allocations of a run in the order of time, each cut where the next begins.

    The events tell of each; of a job's newest one counts what Slurm says, where it is handed in with the run. One that
    runs lasts until `now`; where Slurm does not answer, until its last event.
    """
    found = [allocation for job in run.jobs for allocation in allocations_of(job, now)]
    found.sort(key=lambda one: (one.begin, one.end))
    begins = [*(one.begin for one in found[1:]), math.inf]
    return [one._replace(end=min(one.end, max(one.begin, begin))) for one, begin in zip(found, begins, strict=False)]


def allocations_of(job: Job, now: float) -> list[Allocation]:
    """Return those of one job, the oldest first."""
    starts: dict[str, list[Attempt]] = {}
    for attempt in job.attempts:
        starts.setdefault(attempt.name.partition(".")[0], []).append(attempt)
    in_queue = bool(job.slurm and job.slurm.was_cancelled_in_queue)
    slurm = None if in_queue else job.slurm
    found = [_from_events(tuple(attempts), in_queue=in_queue) for attempts in starts.values()]
    if slurm and slurm.started and slurm.phase != "queued":
        began = slurm.started.timestamp()
        has_events = found and found[-1].end >= began
        newest = found.pop() if has_events else Allocation(job.job_id, began, began, 1, ())
        found.append(newest._replace(begin=began, nodes=len(try_expand(slurm.nodes) or ()) or newest.nodes))
    ended = slurm.ended.timestamp() if slurm and slurm.ended and slurm.has_ended else None
    goes_on = job.outcome.kind is Kind.RUNNING and (slurm or JobRef.parse(job.job_id).is_local)
    end = now if goes_on else ended
    return [*found[:-1], *(one._replace(end=max(one.begin, end or one.end)) for one in found[-1:])]


def _from_events(attempts: tuple[Attempt, ...], *, in_queue: bool) -> Allocation:
    begins, ends, nodes = list[float](), list[float](), [1]
    for attempt in attempts:
        events, was_left = attempt.events, in_queue or attempt.events.last("requeue") is not None
        starts = [event for event in events.events if event.kind in ("attempt_start", "start")]
        begins += [events.began, *(event.number("allocated") or events.began for event in starts)]
        # a job that is cancelled after its return to the queue has no nodes then
        ends += [event.time for event in events.events if not (event.kind == "cancel" and was_left)]
        ends += [attempt.left] * (attempt.left > events.seen)
        nodes += [len(try_expand(attempt.hosts) or ()), *(event.count("nodes") for event in starts)]
    return Allocation(attempts[0].job_id, min(begins), max(ends), max(nodes), attempts)
