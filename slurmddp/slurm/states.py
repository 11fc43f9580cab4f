"""The states of a job in Slurm, and what each means: the data of states.json, and the questions to it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurmddp.outcome import Kind, Outcome


class State(NamedTuple):
    """One of Slurm's states."""

    kind: Kind
    meaning: str = ""
    """In words, with `{job}` for the job's id; empty where the state's name says it."""
    holds_nodes: bool = False
    """Whether the job has its nodes and keeps them."""


_ROWS: Final[Mapping[str, Mapping[str, Any]]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
STATES: Final[Mapping[str, State]] = {
    word: State(Kind(row["kind"]), row.get("meaning", ""), row.get("holds_nodes", False)) for word, row in _ROWS.items()
}
"""Every state and flag that squeue(1) and sacct(1) show of a job, 22.05 to 25.11."""

_OTHER: Final = State(Kind.UNKNOWN)
UNKNOWN: Final = "UNKNOWN"
"""The state of a job of which no program tells one."""


def find_state(word: str) -> State:
    """Return what is known of a state; its kind is `unknown` for any other word."""
    return STATES.get(word, _OTHER)


@cache
def outcome_of(state: str) -> Outcome:
    """Return what a job in this state has come to, as far as the state alone tells."""
    return Outcome(kind=find_state(state).kind, state=state)


def has_ended(state: str) -> bool:
    """Return whether a job in this state will not run again by itself."""
    return find_state(state).kind.final


def may_run(state: str) -> bool:
    """Return whether a job in this state can still run; it can in one of Slurm's that is not listed here."""
    return state not in ("", UNKNOWN) and not has_ended(state)
