"""What a job, an attempt or a rank has come to: the kinds, and what each means to every view. No I/O.

`slurmddp.runs.facts` finds the outcome; the views read it from there, and decide nothing by themselves.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple

from slurmddp import exit_codes

SCRIPT_KILLED: Final = "its batch script was ended by signal"
Phase = Literal["queued", "running", "done", "failed", "cancelled", "unknown"]


class Kind(str, Enum):
    """The kinds of outcomes, in the order of a job's life; the value is the word in JSON."""

    PENDING = "pending"
    RUNNING = "running"
    UNKNOWN = "unknown"
    DONE = "done"
    STOPPED = "stopped"
    """Told to stop, and not put back into the queue; or, of an attempt, stopped before its job went back."""
    REQUEUED = "requeued"
    """An attempt that Slurm ended to put its job back into the queue."""
    CANCELLED = "cancelled"
    FENCED = "fenced"
    """Another attempt owned the run, so this one wrote nothing more."""
    TIME_LIMIT = "time_limit"
    NODE_LOST = "node_lost"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    """The program, a set-up line, or a configuration is wrong: the next start would end the same way."""
    CRASHED = "crashed"
    """Ranks were killed or lost a peer, and no restart was left."""
    KILLED = "killed"
    """The batch script itself was killed by a signal; or, of an attempt, there is no record of its end."""

    __str__ = str.__str__

    @property
    def final(self) -> bool:
        """Whether nothing more happens by itself; not of an attempt: its job may continue."""
        return self not in (Kind.PENDING, Kind.RUNNING, Kind.UNKNOWN)


class Meaning(NamedTuple):
    """What a kind means to the views."""

    word: str
    """In the column STATE of `status`; Slurm's own word where Slurm has one that says more."""
    phase: Phase
    label: str
    """In the report, and in the results of a sweep."""
    colour: str
    """Of the word on a terminal; in the report green is good, red is bad, and the others are neutral."""
    back: str
    """What brings the job back; empty where that does not apply."""
    failed: bool = False
    """Whether it counts as a failure: in a sweep, and in `diagnose --all`."""

    @property
    def wait_status(self) -> int:
        """The exit status of `submit --wait` after this end."""
        return 0 if self.phase == "done" else 1


_AGAIN: Final = "type the same `slurmddp submit` again; it continues from a checkpoint if there is one"

MEANINGS: Final[Mapping[Kind, Meaning]] = {
    Kind.PENDING: Meaning("PENDING", "queued", "pending", "yellow", "Slurm starts it"),
    Kind.RUNNING: Meaning("RUNNING", "running", "running", "green", ""),
    Kind.UNKNOWN: Meaning("UNKNOWN", "unknown", "unknown", "", _AGAIN),
    Kind.DONE: Meaning("COMPLETED", "done", "done", "green", ""),
    Kind.STOPPED: Meaning("STOPPED", "failed", "stopped by a signal", "yellow", _AGAIN),
    Kind.REQUEUED: Meaning("REQUEUED", "queued", "requeued by Slurm", "yellow", "Slurm starts it again"),
    Kind.CANCELLED: Meaning("CANCELLED", "cancelled", "cancelled", "magenta", _AGAIN),
    Kind.FENCED: Meaning("FENCED", "failed", "another attempt owned the run", "yellow", "the owner goes on"),
    Kind.TIME_LIMIT: Meaning(
        "TIMEOUT", "failed", "time limit", "red", f"{_AGAIN}; a longer --time needs fewer of them", failed=True
    ),
    Kind.NODE_LOST: Meaning("NODE_FAIL", "failed", "node lost", "red", _AGAIN, failed=True),
    Kind.OUT_OF_MEMORY: Meaning(
        "OUT_OF_MEMORY", "failed", "out of memory", "red", f"give more --mem, and {_AGAIN}", failed=True
    ),
    Kind.FAILED: Meaning("FAILED", "failed", "failed", "red", f"correct the program, and {_AGAIN}", failed=True),
    Kind.CRASHED: Meaning("CRASHED", "failed", "crashed", "red", _AGAIN, failed=True),
    Kind.KILLED: Meaning("KILLED", "failed", "killed", "red", _AGAIN, failed=True),
}
"""One row a kind; docs/exit-codes.md shows it."""

_BY_STATUS: Final[Mapping[int, Kind]] = {
    exit_codes.DONE: Kind.DONE,
    exit_codes.STOPPED: Kind.STOPPED,
    exit_codes.FAILED: Kind.FAILED,
    exit_codes.FENCED: Kind.FENCED,
}


def kind_of_status(status: int) -> Kind:
    """Return how a rank or an attempt ended by its exit status; one that is not ours is that of a killed rank."""
    return _BY_STATUS.get(status, Kind.CRASHED)


class Outcome(NamedTuple):
    """What a job, an attempt or a rank has come to."""

    kind: Kind
    status: "int | None" = None
    """The exit status of the rank, of the attempt, or of the batch script; None where it is not on record."""
    signal: int = 0
    """The signal that ended the batch script; 0 for none."""
    reason: str = ""
    """In words, as the rank, the supervisor or Slurm gives it."""
    time: "float | None" = None
    """When it ended, in seconds since 1970, by the clock of the writer; None where it is not on record."""
    state: str = ""
    """Slurm's word, where Slurm has given one."""

    @property
    def final(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.kind.final

    @property
    def meaning(self) -> Meaning:
        """What its kind means to the views."""
        return MEANINGS[self.kind]

    @property
    def word(self) -> str:
        """The word in the column STATE of `status`: Slurm's own, but of a failure the job knows more."""
        knows_more = self.state == "FAILED" or self.kind is Kind.DONE
        return MEANINGS[self.kind].word if knows_more else self.state or MEANINGS[self.kind].word

    @property
    def exit_status(self) -> str:
        """Exit status and signal in Slurm's form, `77:0`; empty where they are not known."""
        return "" if self.status is None else f"{self.status}:{self.signal}"
