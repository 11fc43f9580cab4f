"""What a job's state and exit code tell by themselves. Data, and how to look it up."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from slurmddp.diagnose.model import Sure


@dataclass(frozen=True, kw_only=True)
class StateRule:
    """One way in which Slurm says how a job ended."""

    key: str
    state: str
    """Slurm's word; any where it is empty."""
    exit_code: str = ""
    """`status:signal` as Slurm shows it; any where it is empty."""
    what: str
    """One sentence; `{nodes}`, `{by}` and `{reason}` stand for what Slurm says."""
    advice: str
    again: bool | None
    sure: Sure = "certain"


_ON = "submit its name again to go on from its last checkpoint"

STATES: Final = (
    StateRule(
        key="time-limit",
        state="TIMEOUT",
        what="the time limit was reached",
        advice=f"{_ON}, or with more time: -t",
        again=True,
    ),
    StateRule(
        key="out-of-memory",
        state="OUT_OF_MEMORY",
        what="the job used more memory than it had asked for",
        advice="ask for more (--mem), or use less: fewer loader workers, smaller batches",
        again=False,
    ),
    StateRule(
        key="node-lost",
        state="NODE_FAIL",
        what="a node was lost: one of {nodes}",
        advice="submit it again without that node: -x NODE; `sinfo -R` names it",
        again=True,
    ),
    StateRule(
        key="preempted",
        state="PREEMPTED",
        what="a more urgent job took its nodes",
        advice=_ON,
        again=True,
    ),
    StateRule(
        key="cancelled",
        state="CANCELLED",
        what="the job was cancelled{by}",
        advice=_ON,
        again=True,
    ),
    StateRule(
        key="cancelled",
        state="REVOKED",
        what="the job was taken back: another cluster of the federation runs it",
        advice="ask that cluster",
        again=None,
    ),
    StateRule(
        key="node-boot",
        state="BOOT_FAIL",
        what="a node did not come up",
        advice="submit it again; `sinfo -R` names the node",
        again=True,
    ),
    StateRule(
        key="deadline",
        state="DEADLINE",
        what="its deadline was reached",
        advice="submit it again with a later --deadline, or without",
        again=False,
    ),
    StateRule(
        key="launch-failed",
        state="LAUNCH_FAILED",
        what="a node could not start it",
        advice="submit it again without that node: -x NODE; `sinfo -R` names it",
        again=True,
    ),
    StateRule(
        key="reconfig-failed",
        state="RECONFIG_FAIL",
        what="a node could not be set up for it",
        advice="submit it again without that node: -x NODE; `sinfo -R` names it",
        again=True,
    ),
    StateRule(
        key="output-missing",
        state="FAILED",
        exit_code="0:53",
        what="Slurm could not open its output: the folder of --output, or the working directory, is missing or not "
        "to be written to on the node",
        advice="make the folder before submitting; slurmddp submit makes its own",
        again=False,
    ),
    StateRule(
        key="command-missing",
        state="FAILED",
        exit_code="127:0",
        what="a command of the script was not found",
        advice="load or activate what it comes with (--module, --venv, --conda), or give its full path",
        again=False,
        sure="likely",
    ),
    StateRule(
        key="not-executable",
        state="FAILED",
        exit_code="126:0",
        what="a command of the script may not be executed",
        advice="chmod +x, or look at the interpreter that its first line names",
        again=False,
        sure="likely",
    ),
)


def rule_of(state: str, exit_code: str) -> StateRule | None:
    """Return what such an end tells by itself; None when that is nothing."""
    return next(_fitting(state, exit_code), None)


def _fitting(state: str, exit_code: str) -> Iterator[StateRule]:
    return (rule for rule in STATES if rule.state == state and rule.exit_code in ("", exit_code))


@dataclass(frozen=True, kw_only=True)
class SignalRule:
    """What it means that a signal ended a rank by itself, before any other."""

    key: str
    what: str
    advice: str
    again: bool | None
    sure: Sure = "certain"


STOPS: Final = {
    "time limit": "time-limit",
    "preempted": "preempted",
    "requeued": "requeued",
    "cancelled": "cancelled",
}
"""What Slurm had said when rank 0 was told to stop, in its record; and the cause's name."""

SIGNALS: Final = {
    "SIGKILL": SignalRule(
        key="rank-killed",
        what="it was killed (SIGKILL); by whom is written nowhere: the kernel does so when a node's memory runs out",
        advice="`dmesg -T` on the node says if it was the kernel; if so, more --mem or fewer loader workers",
        again=True,
        sure="likely",
    ),
    "SIGSEGV": SignalRule(
        key="segfault",
        what="a library in C crashed (SIGSEGV)",
        advice="--env PYTHONFAULTHANDLER=1 and submit again: Python then says in which line it was",
        again=None,
    ),
    "SIGBUS": SignalRule(
        key="bus-error",
        what="it ended by a bus error: most often shared memory is full, or a file that is mapped was cut short",
        advice="larger shared memory, fewer loader workers, or set_sharing_strategy('file_system')",
        again=None,
        sure="likely",
    ),
    "SIGABRT": SignalRule(
        key="rank-aborted",
        what="a library in C gave up (SIGABRT)",
        advice="its last lines say why",
        again=None,
    ),
    "SIGILL": SignalRule(
        key="illegal-instruction",
        what="it uses instructions that its node's processor does not have",
        advice="take nodes of one kind (--constraint), or libraries built for the oldest of them",
        again=False,
    ),
    "SIGTERM": SignalRule(
        key="rank-terminated",
        what="it was told to end (SIGTERM), by whom is written nowhere",
        advice="submit it again",
        again=True,
        sure="likely",
    ),
    "out of memory": SignalRule(
        key="out-of-memory",
        what="the job used more memory than it had asked for, and the kernel killed it",
        advice="ask for more (--mem), or use less: fewer loader workers, smaller batches",
        again=False,
    ),
    "": SignalRule(
        key="exit-status",
        what="it ended itself with status {status}",
        advice="its own last lines say why",
        again=False,
    ),
    "silent": SignalRule(
        key="rank-silent",
        what="it left no record: it was killed, or its node was lost",
        advice="look at the end of its output, and at its node: `sinfo -R`",
        again=True,
        sure="likely",
    ),
}
"""By the signal's name; empty for an end without one; `silent` where nobody told how."""
