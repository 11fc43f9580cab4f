"""Names of the environment variables by which the batch script, the supervisor and the ranks speak. Values only.

`SLURMDDP_` and the name of a job option in capitals is the user's configuration; a test keeps the two apart.
"""

from collections.abc import MutableMapping
from typing import Final

RUN_DIR: Final = "SLURMDDP_RUN_DIR"
"""The run's folder."""
JOB_ID: Final = "SLURMDDP_JOB_ID"
"""The job as file names have it: `17`, or `17_3` for a task of an array."""
ATTEMPT: Final = "SLURMDDP_ATTEMPT"
"""`<SLURM_RESTART_COUNT>.<n>`; n counts the starts of the ranks in this allocation."""
ATTEMPT_DIR: Final = "SLURMDDP_ATTEMPT_DIR"
"""The folder of the attempt's output and exit records."""
OWNER: Final = "SLURMDDP_OWNER"
"""The line that the run's owner file must hold for this attempt to write."""
STARTED_BY: Final = "SLURMDDP_STARTED_BY"
"""srun, fork, torchrun, mpi or single: which variables tell a process its rank."""
HOSTS: Final = "SLURMDDP_HOSTS"
"""The job's nodes in order, separated by white space."""
HEAD_ADDRESS: Final = "SLURMDDP_HEAD_ADDRESS"
"""NodeAddr of the first node, for nodes on which its name does not resolve."""
STORE_PORT: Final = "SLURMDDP_STORE_PORT"
"""Where the ranks agree on who they are; MASTER_PORT is their group's."""
RENDEZVOUS_FILE: Final = "SLURMDDP_RENDEZVOUS_FILE"
"""`file://` and the path by which the ranks form their group; unset where they meet at a port."""
STOP_AT: Final = "SLURMDDP_STOP_AT"
"""When the ranks stop by their own clock, in seconds since 1970; unset without a time limit."""
STEP_LIMIT: Final = "SLURMDDP_STEP_LIMIT"
"""After how many steps the training loop ends (`--steps`)."""
RESTARTS: Final = "SLURMDDP_RESTARTS"
"""How many starts of the ranks there were before this one, in the job and in those before it in its chain."""
CHECKPOINT_DIR: Final = "SLURMDDP_CHECKPOINT_DIR"
"""The run's folder for checkpoints; a program may write its own there."""
RESUME: Final = "SLURMDDP_RESUME"
"""1: the ranks start with the arguments of `--resume-args`; else it is not set."""
CHECKPOINT: Final = "SLURMDDP_CHECKPOINT"
"""The program's newest checkpoint since the job's first start (`--checkpoints`); not set without one."""
SKIP_PREFLIGHT: Final = "SLURMDDP_SKIP_PREFLIGHT"
"""1: nodes and ranks are not looked at before COMMAND starts (`--no-preflight`)."""
EXIT_0_AFTER_SIGNAL: Final = "SLURMDDP_EXIT_0_AFTER_SIGNAL"
"""done: status 0 of a program that has handled a stop signal means that it is complete (`--after-signal-exit-0`)."""
SKIP_TRACKER_IDS: Final = "SLURMDDP_SKIP_TRACKER_IDS"
"""1: the ids of the run are not set in the variables of wandb and MLflow (`--no-tracker-ids`)."""
RANK_LOGS: Final = "SLURMDDP_RANK_LOGS"
"""Which ranks send their own output to a file: `all`, or from which rank on."""
CODE: Final = "SLURMDDP_CODE"
"""The copy of the code that the ranks run (`--snapshot`)."""
CODE_ORIGIN: Final = "SLURMDDP_CODE_ORIGIN"
"""The folder that was copied."""
WORKDIR: Final = "SLURMDDP_WORKDIR"
"""The working directory of the batch script, as the shell names it."""
REAL_WORKDIR: Final = "SLURMDDP_REAL_WORKDIR"
"""The same without symbolic links."""
ENVIRONMENT: Final = "SLURMDDP_ENVIRONMENT"
"""The Python environment of the ranks: a copy on the node's disk, or the shared one (`--stage-env`)."""
STATUS: Final = "SLURMDDP_STATUS"
"""How the attempt ended, for a template's `finish` block."""
SWEEP_DIR: Final = "SLURMDDP_SWEEP_DIR"
"""The sweep's folder, in which that of each setting lies."""
STEP_NAME: Final = "SLURMDDP_STEP_NAME"
"""What the step is called in an allocation that somebody else has made."""

CONTAINER_PROGRAM: Final = "SLURMDDP_CONTAINER_PROGRAM"
"""apptainer or singularity, by its path."""

_BEFORE: Final = {
    "DDPRUN_DIR": RUN_DIR,
    "DDPRUN_JOB": JOB_ID,
    "DDPRUN_ATTEMPT": ATTEMPT,
    "DDPRUN_RANKS": ATTEMPT_DIR,
    "DDPRUN_OWNER": OWNER,
    "DDPRUN_LAUNCHER": STARTED_BY,
    "DDPRUN_HOSTS": HOSTS,
    "DDPRUN_MASTER_NODEADDR": HEAD_ADDRESS,
    "DDPRUN_STORE_PORT": STORE_PORT,
    "DDPRUN_INIT_METHOD": RENDEZVOUS_FILE,
    "DDPRUN_STOP_AT": STOP_AT,
    "DDPRUN_STEPS": STEP_LIMIT,
    "DDPRUN_RANK_LOGS": RANK_LOGS,
    "DDPRUN_CODE": CODE,
    "DDPRUN_CODE_OF": CODE_ORIGIN,
    "DDPRUN_HERE": WORKDIR,
    "DDPRUN_HERE_OF": REAL_WORKDIR,
    "DDPRUN_STATUS": STATUS,
}
"""The names before 0.2, by which templates and programs of users may know the same values."""

_SAID_TO_ONE: Final = (STATUS, STOP_AT, RENDEZVOUS_FILE, RESTARTS, CHECKPOINT_DIR, RESUME, CHECKPOINT)
OF_AN_ATTEMPT: Final = frozenset({*_SAID_TO_ONE, *(old for old, new in _BEFORE.items() if new in _SAID_TO_ONE)})
"""What is said to one attempt, and must not reach another."""

NAMES: Final = frozenset(
    {
        *_BEFORE.values(),
        *_SAID_TO_ONE,
        *(EXIT_0_AFTER_SIGNAL, SKIP_PREFLIGHT, SKIP_TRACKER_IDS, SWEEP_DIR, STEP_NAME, CONTAINER_PROGRAM, ENVIRONMENT),
    }
)
"""All of them: what a job says to its own processes, and nobody else should hear."""


def adopt_old_names(environ: MutableMapping[str, str]) -> None:
    """Set the names of today from those before 0.2: a script that was queued then starts a worker of today."""
    for old, new in _BEFORE.items():
        if old in environ:
            environ.setdefault(new, environ[old])
    if environ.get("DDPRUN_PREFLIGHT") == "0":
        environ.setdefault(SKIP_PREFLIGHT, "1")


def with_old_names(values: dict[str, str]) -> dict[str, str]:
    """Return variables with those before 0.2 beside them, for templates and programs that read these.

    STORE_PORT stays alone: a launcher that unsets it must not find it under its old name.
    """
    return values | {old: values[new] for old, new in _BEFORE.items() if new in values and new != STORE_PORT}
