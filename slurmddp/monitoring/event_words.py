"""Describes the events of a run in words, for people. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from slurmddp.runs.history import Event
from slurmddp.text import count


def describe_event(event: Event) -> str:
    """Return an event in words; empty for kinds that say nothing beyond their name, and for metrics."""
    describe = _DESCRIPTIONS.get(event.kind)
    return describe(event) if describe else ""


_DESCRIPTIONS: Final[Mapping[str, Callable[[Event], str]]] = {
    "start": lambda event: (
        f"{event.count('world_size')} ranks on {count(event.count('nodes'), 'node')} finished the rendezvous"
    ),
    "resume": lambda event: f"resumed from step {event.count('step'):,}, {event.text('checkpoint')}",
    "checkpoint": lambda event: f"checkpoint of step {event.count('step'):,}",
    "straggler": lambda event: f"rank {event.count('slow_rank')} on {event.text('slow_host')} is slow",
    "notice": lambda event: f"stop signal received: {event.text('reason')} ({event.text('cause')})",
    "requeue": lambda event: f"back into the queue: {event.text('reason')}",
    "fenced": lambda event: f"started no ranks: {event.text('reason')}",
    "job_end": lambda event: f"the job ended with status {event.count('status')}: {event.text('reason')}",
    "cancel": lambda event: f"cancelled by `slurmddp cancel` ({event.text('by')})",
    "restart": lambda event: f"restarted after status {event.count('status')}: {event.text('reason')}",
    "checkpoint-failed": lambda event: f"step {event.count('step'):,} could not be saved: {event.text('reason')}",
    "end": lambda event: f"rank 0 ended with status {event.count('status')}: {event.text('reason')}",
}
