"""What the state of a job, and the way in which a rank ended, say by themselves. Data, and its look-up."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import EXIT_STATUS, Cause

RESUME: Final = "submit it again; a program that finds its checkpoint continues there"
"""For a job of a run, the diagnosis names the command instead."""

_resumable = partial(Cause, advice=RESUME, again=True)
_node_failed = partial(Cause, advice="submit it again without that node: -x NODE; `sinfo -R` names it", again=True)
_out_of_memory = partial(
    Cause,
    key="out-of-memory",
    advice="ask for more (--mem), or use less: fewer loader workers, smaller batches",
)

STATE_RULES: Final[Mapping[str, Cause]] = {
    "TIMEOUT": Cause(
        key="time-limit", what="the time limit was reached", advice=f"{RESUME}; -t gives it more time", again=True
    ),
    "OUT_OF_MEMORY": _out_of_memory(what="the job used more memory than it had asked for"),
    "NODE_FAIL": _node_failed(key="node-lost", what="a node was lost: one of {nodes}"),
    "PREEMPTED": _resumable(key="preempted", what="a job of higher priority took its nodes"),
    "CANCELLED": _resumable(key="cancelled", what="the job was cancelled{by}"),
    "REVOKED": Cause(
        key="cancelled",
        what="the job was revoked: another cluster of the federation runs it",
        advice="look for it on that cluster",
        again=None,
    ),
    "BOOT_FAIL": Cause(
        key="node-boot",
        what="a node did not boot",
        advice="submit it again; `sinfo -R` names the node",
        again=True,
    ),
    "DEADLINE": Cause(
        key="deadline",
        what="its deadline was reached",
        advice="submit it again with a later --deadline, or without one",
    ),
    "LAUNCH_FAILED": _node_failed(key="launch-failed", what="a node could not start the job"),
    "RECONFIG_FAIL": _node_failed(key="reconfig-failed", what="a node could not be reconfigured for the job"),
    "FAILED 0:53": Cause(
        key="output-missing",
        what="Slurm could not open the job's output: on the node, the folder of --output or the working directory is "
        "missing or cannot be written to",
        advice="make the folder before you submit the job; `slurmddp submit` makes its own",
    ),
    "FAILED 127:0": Cause(
        key="command-missing",
        what="a command of the script was not found",
        advice="load or activate the environment that has it (--module, --venv, --conda), or give its full path",
        sure="likely",
    ),
    "FAILED 126:0": Cause(
        key="not-executable",
        what="a command of the script cannot be executed",
        advice="chmod +x, or correct the interpreter in its first line",
        sure="likely",
    ),
}
"""By Slurm's state of the job, or by state and exit code, `status:signal`. `{nodes}` and `{by}` are filled in."""


def find_state_rule(state: str, exit_code: str) -> Cause | None:
    """Return the cause of a job that ended so; None if the state says nothing by itself."""
    return STATE_RULES.get(state) or STATE_RULES.get(f"{state} {exit_code}")


STOP_REASONS: Final = ("time limit", "preempted", "requeued", "cancelled")
"""What rank 0's record says in brackets of being told to stop; with `-` for the blank it is the cause."""

END_RULES: Final = {
    "SIGKILL": Cause(
        key="rank-killed",
        what="it was killed (SIGKILL), and no file says why: the kernel does this when a node runs out of memory",
        advice="`dmesg -T` on the node says whether the kernel did it; then use more --mem or fewer loader workers",
        again=True,
        sure="likely",
    ),
    "SIGSEGV": Cause(
        key="segfault",
        what="a native library crashed (SIGSEGV)",
        advice="submit it with --env PYTHONFAULTHANDLER=1: Python then prints the line at which it crashed",
        again=None,
    ),
    "SIGBUS": Cause(
        key="bus-error",
        what="it ended with a bus error: most often shared memory is full, or a mapped file was truncated",
        advice="use a larger shared memory, fewer loader workers, or set_sharing_strategy('file_system')",
        again=None,
        sure="likely",
    ),
    "SIGABRT": Cause(
        key="rank-aborted",
        what="a native library aborted it (SIGABRT)",
        advice="read the last lines of its output",
        again=None,
    ),
    "SIGILL": Cause(
        key="illegal-instruction",
        what="it uses instructions that the processor of its node does not have",
        advice="choose nodes of one kind (--constraint), or libraries that are built for the oldest kind",
    ),
    "SIGTERM": Cause(
        key="rank-terminated",
        what="it was terminated (SIGTERM), and no file says why",
        advice="submit it again",
        again=True,
        sure="likely",
    ),
    "out of memory": _out_of_memory(what="the job used more memory than it had asked for, and the kernel killed it"),
    "": Cause(key=EXIT_STATUS, what="it exited with status {status}", advice="read the last lines of its output"),
    "silent": Cause(
        key="rank-silent",
        what="it left no record: it was killed, or its node was lost",
        advice="read the end of its output, and check its node: `sinfo -R`",
        again=True,
        sure="likely",
    ),
}
"""By the signal that ended a rank; `""` for an exit status, `silent` for no record at all. `{status}` is filled in."""
