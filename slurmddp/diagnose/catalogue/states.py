"""What the state of a job, and the way in which a rank ended, say by themselves. Data, and its look-up."""

from dataclasses import dataclass
from typing import Final

from slurmddp.diagnose.rule_types import Sure


@dataclass(frozen=True, kw_only=True)
class EndRule:
    """What the end of a job or of a rank means."""

    key: str
    """The name of the cause."""
    state: str = ""
    """Slurm's state of the job; empty in the rules for ranks."""
    exit_code: str = ""
    """`status:signal` as Slurm shows it; empty matches all."""
    what: str
    """One sentence; `{nodes}` and `{by}` are filled in for a job, `{status}` for a rank."""
    advice: str
    again: bool | None
    """Whether an unchanged new start can help; None if that is not known."""
    sure: Sure = "certain"


_MEMORY_ADVICE: Final = "ask for more (--mem), or use less: fewer loader workers, smaller batches"
_RESUME: Final = "submit the same name again: it continues from the last checkpoint"

STATE_RULES: Final = (
    EndRule(
        key="time-limit",
        state="TIMEOUT",
        what="the time limit was reached",
        advice=f"{_RESUME}; -t gives it more time",
        again=True,
    ),
    EndRule(
        key="out-of-memory",
        state="OUT_OF_MEMORY",
        what="the job used more memory than it had asked for",
        advice=_MEMORY_ADVICE,
        again=False,
    ),
    EndRule(
        key="node-lost",
        state="NODE_FAIL",
        what="a node was lost: one of {nodes}",
        advice="submit it again without that node: -x NODE; `sinfo -R` names it",
        again=True,
    ),
    EndRule(
        key="preempted",
        state="PREEMPTED",
        what="a job of higher priority took its nodes",
        advice=_RESUME,
        again=True,
    ),
    EndRule(
        key="cancelled",
        state="CANCELLED",
        what="the job was cancelled{by}",
        advice=_RESUME,
        again=True,
    ),
    EndRule(
        key="cancelled",
        state="REVOKED",
        what="the job was revoked: another cluster of the federation runs it",
        advice="look for it on that cluster",
        again=None,
    ),
    EndRule(
        key="node-boot",
        state="BOOT_FAIL",
        what="a node did not boot",
        advice="submit it again; `sinfo -R` names the node",
        again=True,
    ),
    EndRule(
        key="deadline",
        state="DEADLINE",
        what="its deadline was reached",
        advice="submit it again with a later --deadline, or without one",
        again=False,
    ),
    EndRule(
        key="launch-failed",
        state="LAUNCH_FAILED",
        what="a node could not start the job",
        advice="submit it again without that node: -x NODE; `sinfo -R` names it",
        again=True,
    ),
    EndRule(
        key="reconfig-failed",
        state="RECONFIG_FAIL",
        what="a node could not be reconfigured for the job",
        advice="submit it again without that node: -x NODE; `sinfo -R` names it",
        again=True,
    ),
    EndRule(
        key="output-missing",
        state="FAILED",
        exit_code="0:53",
        what="Slurm could not open the job's output: on the node, the folder of --output or the working directory is "
        "missing or cannot be written to",
        advice="make the folder before you submit the job; `slurmddp submit` makes its own",
        again=False,
    ),
    EndRule(
        key="command-missing",
        state="FAILED",
        exit_code="127:0",
        what="a command of the script was not found",
        advice="load or activate the environment that has it (--module, --venv, --conda), or give its full path",
        again=False,
        sure="likely",
    ),
    EndRule(
        key="not-executable",
        state="FAILED",
        exit_code="126:0",
        what="a command of the script cannot be executed",
        advice="chmod +x, or correct the interpreter in its first line",
        again=False,
        sure="likely",
    ),
)


def find_state_rule(state: str, exit_code: str) -> EndRule | None:
    """Return the rule for a job that ended so; None if the state says nothing by itself."""
    return next((rule for rule in STATE_RULES if rule.state == state and rule.exit_code in ("", exit_code)), None)


STOP_CAUSES: Final = {
    "time limit": "time-limit",
    "preempted": "preempted",
    "requeued": "requeued",
    "cancelled": "cancelled",
}
"""The causes by the reason that rank 0's record gives in brackets for being told to stop."""

END_RULES: Final = {
    "SIGKILL": EndRule(
        key="rank-killed",
        what="it was killed (SIGKILL), and no file says why: the kernel does this when a node runs out of memory",
        advice="`dmesg -T` on the node says whether the kernel did it; then use more --mem or fewer loader workers",
        again=True,
        sure="likely",
    ),
    "SIGSEGV": EndRule(
        key="segfault",
        what="a native library crashed (SIGSEGV)",
        advice="submit it with --env PYTHONFAULTHANDLER=1: Python then prints the line at which it crashed",
        again=None,
    ),
    "SIGBUS": EndRule(
        key="bus-error",
        what="it ended with a bus error: most often shared memory is full, or a mapped file was truncated",
        advice="use a larger shared memory, fewer loader workers, or set_sharing_strategy('file_system')",
        again=None,
        sure="likely",
    ),
    "SIGABRT": EndRule(
        key="rank-aborted",
        what="a native library aborted it (SIGABRT)",
        advice="read the last lines of its output",
        again=None,
    ),
    "SIGILL": EndRule(
        key="illegal-instruction",
        what="it uses instructions that the processor of its node does not have",
        advice="choose nodes of one kind (--constraint), or libraries that are built for the oldest kind",
        again=False,
    ),
    "SIGTERM": EndRule(
        key="rank-terminated",
        what="it was terminated (SIGTERM), and no file says why",
        advice="submit it again",
        again=True,
        sure="likely",
    ),
    "out of memory": EndRule(
        key="out-of-memory",
        what="the job used more memory than it had asked for, and the kernel killed it",
        advice=_MEMORY_ADVICE,
        again=False,
    ),
    "": EndRule(
        key="exit-status",
        what="it exited with status {status}",
        advice="read the last lines of its output",
        again=False,
    ),
    "silent": EndRule(
        key="rank-silent",
        what="it left no record: it was killed, or its node was lost",
        advice="read the end of its output, and check its node: `sinfo -R`",
        again=True,
        sure="likely",
    ),
}
"""The meaning of a rank's end by the signal that ended it; `""` for an exit status, `silent` for no record at all."""
