"""Names of the environment variables by which the batch script, the supervisor and the ranks speak. Values only.

`SLURMDDP_` and the name of a job option in capitals is the user's configuration; a test keeps the two apart.
"""

from typing import Final

RUN_DIR: Final = "SLURMDDP_RUN_DIR"
"""The run's folder."""
JOB_ID: Final = "SLURMDDP_JOB_ID"
"""The job as file names have it: `17`, or `17_3` for a task of an array."""
ATTEMPT: Final = "SLURMDDP_ATTEMPT"
"""`<SLURM_RESTART_COUNT>.<n>`, as in `2.1`; n counts the starts of the ranks in this allocation."""
ATTEMPT_DIR: Final = "SLURMDDP_ATTEMPT_DIR"
"""The folder of the attempt's output and exit records."""
OWNER: Final = "SLURMDDP_OWNER"
"""The line that the run's owner file must hold for this attempt to write."""
STARTED_BY: Final = "SLURMDDP_STARTED_BY"
"""srun, fork, torchrun, mpi or single: which variables tell a process its rank."""
HOSTS: Final = "SLURMDDP_HOSTS"
"""The job's nodes in order, separated by white space."""
HEAD_ADDRESS: Final = "SLURMDDP_HEAD_NODE_ADDR"
"""NodeAddr of the first node, for nodes on which its name does not resolve."""
STORE_PORT: Final = "SLURMDDP_STORE_PORT"
"""The port of the check in which the ranks meet; `MASTER_PORT` is that of their process group."""
SECRET: Final = "SLURMDDP_SECRET"  # noqa: S105 the variable's name
"""Random digits that only the processes of this attempt know; they recognise each other's messages by it."""
BEATS: Final = "SLURMDDP_BEATS"
"""`host:port` where the supervisor receives what the ranks report of themselves; not set where it cannot."""
STOP_AT: Final = "SLURMDDP_STOP_AT"
"""When the ranks stop by their own clock, in seconds since 1970; not set without a time limit."""
STEP_LIMIT: Final = "SLURMDDP_STEP_LIMIT"
"""After how many steps the training loop ends (`--steps`)."""
RESTARTS: Final = "SLURMDDP_RESTARTS"
"""The number of starts of the ranks before this one, in the job and in those before it in its chain; 0 at first."""
CHECKPOINT_DIR: Final = "SLURMDDP_CHECKPOINT_DIR"
"""The run's folder for checkpoints, `jobs/NAME/checkpoints`; the program must make it; also under `slurmddp run`."""
RESUME: Final = "SLURMDDP_RESUME"
"""`1` if the arguments of `--resume-args` were added; else not set."""
CHECKPOINT: Final = "SLURMDDP_CHECKPOINT"
"""The newest match of `--checkpoints` since the job's first start; not set without one."""
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
STATUS: Final = "SLURMDDP_STATUS"
"""How the attempt ended, for a template's `finish` block."""
SWEEP_DIR: Final = "SLURMDDP_SWEEP_DIR"
"""The sweep's folder, in which that of each setting lies."""
BOOTSTRAP: Final = "SLURMDDP_BOOTSTRAP"
"""The program by which a Python without slurmddp runs the supervisor's."""
NOTIFY_TARGET: Final = "SLURMDDP_NOTIFY_TARGET"
"""The address or command of `--notify`, which may be a secret: it is in no script and on no command line."""
STEP_NAME: Final = "SLURMDDP_STEP_NAME"
"""What the step is called in an allocation that somebody else has made."""

ATTACH: Final = "SLURMDDP_ATTACH"
"""The folder of slurmddp, where the ranks of a person's own launch line attach themselves."""
ATTACH_PYTHONPATH: Final = "SLURMDDP_ATTACH_PYTHONPATH"
"""PYTHONPATH as the person has set it; the ranks get it back."""
ATTACH_BASH_ENV: Final = "SLURMDDP_ATTACH_BASH_ENV"
"""The same of BASH_ENV."""
ATTACHED: Final = "SLURMDDP_ATTACHED"
"""1: this worker has taken the place of a Python that a person's own launch line has started."""

CONTAINER_PROGRAM: Final = "SLURMDDP_CONTAINER_PROGRAM"
"""apptainer or singularity, by its path."""

OF_AN_ATTEMPT: Final = frozenset(
    {STATUS, STOP_AT, SECRET, BEATS, RESTARTS, CHECKPOINT_DIR, RESUME, CHECKPOINT, NOTIFY_TARGET}
)
"""What is said to one attempt, and must not reach another, or to the supervisor alone."""

NAMES: Final = frozenset(value for name, value in [*globals().items()] if name.isupper() and isinstance(value, str)) - {
    NOTIFY_TARGET
}
"""What a job says to its own processes, and no other job may inherit: all but what the submission says to a job."""
