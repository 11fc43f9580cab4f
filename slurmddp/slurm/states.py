"""The states of a job in Slurm, and what each means. Data, and the questions to it."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from slurmddp.outcome import Kind, Outcome, Phase


class State(NamedTuple):
    """One of Slurm's states."""

    kind: Kind
    meaning: str = ""
    """In words, with `{job}` for the job's id; empty where the state's name says it."""
    holds_nodes: bool = False
    """Whether the job has its nodes and keeps them."""


_RELEASE: Final = "`scontrol release {job}` lets it go on"

STATES: Final[Mapping[str, State]] = {
    "PENDING": State(Kind.PENDING),
    "REQUEUED": State(Kind.PENDING, "it goes back into the queue"),
    "EXPEDITING": State(Kind.PENDING, "it goes back into the queue, before all other jobs"),
    "REQUEUE_FED": State(Kind.PENDING, "it goes back into the queue of its federation"),
    "REQUEUE_HOLD": State(Kind.PENDING, f"it was put back into the queue and is held; {_RELEASE}"),
    "SPECIAL_EXIT": State(
        Kind.PENDING, f"it was put back into the queue for somebody to look at, and is held; {_RELEASE}"
    ),
    "RESV_DEL_HOLD": State(Kind.PENDING, f"it is held, for its reservation was deleted; {_RELEASE} without it"),
    "RUNNING": State(Kind.RUNNING, holds_nodes=True),
    "CONFIGURING": State(Kind.RUNNING, "its nodes are being made ready", holds_nodes=True),
    "RESIZING": State(Kind.RUNNING, "its number of nodes is being changed", holds_nodes=True),
    "SIGNALING": State(Kind.RUNNING, "it is being sent a signal", holds_nodes=True),
    "SUSPENDED": State(
        Kind.RUNNING,
        "it stands still: Slurm has suspended it, and lets it go on by itself or by `scontrol resume {job}`",
        holds_nodes=True,
    ),
    "STOPPED": State(
        Kind.RUNNING,
        "it stands still with its nodes: it was sent SIGSTOP, and `scancel -s CONT {job}` lets it go on",
        holds_nodes=True,
    ),
    "POWER_UP_NODE": State(Kind.RUNNING, "its nodes are being started"),
    "COMPLETING": State(Kind.RUNNING, "it leaves its nodes"),
    "STAGE_OUT": State(Kind.RUNNING, "its files are being brought back from a burst buffer"),
    "COMPLETED": State(Kind.DONE),
    "FAILED": State(Kind.FAILED, "its script ended with an error"),
    "TIMEOUT": State(Kind.TIME_LIMIT, "its time limit was reached"),
    "NODE_FAIL": State(Kind.NODE_LOST, "a node of it failed, and Slurm did not put it back into the queue"),
    "OUT_OF_MEMORY": State(Kind.OUT_OF_MEMORY, "it took more memory than it may have"),
    "BOOT_FAIL": State(Kind.NODE_LOST, "a node of it did not start"),
    "DEADLINE": State(Kind.TIME_LIMIT, "its deadline has passed"),
    "PREEMPTED": State(
        Kind.STOPPED, "it had to leave for a more urgent job, and Slurm did not put it back into the queue"
    ),
    "LAUNCH_FAILED": State(Kind.NODE_LOST, "a node failed to start it"),
    "RECONFIG_FAIL": State(Kind.NODE_LOST, "a node could not be set up for it"),
    "CANCELLED": State(Kind.CANCELLED, "it was cancelled"),
    "REVOKED": State(Kind.CANCELLED, "another cluster took it"),
}
"""Every state and flag that squeue(1) and sacct(1) show of a job, 22.05 to 25.11."""

UNKNOWN: Final = "UNKNOWN"
"""The state of a job of which no program tells one."""

_NOT_LISTED: Final = State(Kind.UNKNOWN)


def find_state(word: str) -> State:
    """Return what is known of a state; its phase is `unknown` for any other word."""
    return STATES.get(word, _NOT_LISTED)


def outcome_of(state: str) -> Outcome:
    """Return what a job in this state has come to, as far as the state alone tells."""
    return Outcome(kind=find_state(state).kind, state=state)


def phase_of(state: str) -> Phase:
    """Return the phase that a state belongs to."""
    return find_state(state).kind.phase


def meaning_of(state: str, job_id: str) -> str:
    """Return a state in words; empty where its name says it, and for an unknown state."""
    return find_state(state).meaning.format(job=job_id)


def holds_nodes(state: str) -> bool:
    """Return whether a job in this state has its nodes and keeps them."""
    return find_state(state).holds_nodes


def has_ended(state: str) -> bool:
    """Return whether a job in this state will not run again by itself."""
    return phase_of(state) in ("done", "failed", "cancelled")


def may_run(state: str) -> bool:
    """Return whether a job in this state can still run; it can in one of Slurm's that is not listed here."""
    return state not in ("", UNKNOWN) and not has_ended(state)
