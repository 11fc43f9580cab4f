"""The commands for Slurm's programs; `sbatch_command.py` has those that submit. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from slurmddp.slurm.environment import user

MARK: Final = "slurmddp|"
"""Begins each line that squeue prints, by its `--format`."""
MANY: Final = 500
"""With more jobs than this, all jobs of the user are listed: squeue compares each job with each id, and Linux limits
an argument to 128 KiB."""

_LAYOUT: Final = (
    MARK + "id=%i|state=%T|submit=%V|start=%S|end=%e|elapsed=%M|limit=%l|nodes=%N|partition=%P|user=%u|reason=%r|"
    "name=%j"
)
_COLUMNS: Final = "JobID,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,ExitCode,Partition,NodeList,User,Reason,JobName"
_STEPS_COLUMNS: Final = "JobID,State,Submit,ExitCode,NodeList,Reason,MaxRSS,JobName"

LIST_ACCOUNTED_STEPS: Final = ("sacct", "--parsable2", f"--format={_STEPS_COLUMNS}")
"""Lists a job of the accounting since its last requeue, and its steps; `--jobs` follows."""
ADD_CLUSTER: Final = ("sacctmgr", "--immediate", "add", "cluster")
"""Makes a cluster, whose name follows, known to the accounting."""
WRITE_SCRIPT: Final = ("scontrol", "write", "batch_script")
"""Writes the controller's copy of a job's script: the job's id and the file follow."""
CHECK_SRUN: Final = ("srun", "--test-only")
"""Starts nothing; options follow, and `--help`, which srun answers if it knows those before it."""
SHOW_VERSION: Final = ("slurmd", "-V")
PING: Final = ("scontrol", "ping")
SHOW_LINES: Final = ("scontrol", "--oneliner")
"""Answers the questions of its standard input, a line each."""
SHOW_BY_INPUT: Final = ("scontrol", "--all", "--details", "--oneliner")
"""Answers the questions of its standard input, about hidden partitions, too, and with the GPUs that are in use."""


def list_queue(*which: str, columns: str = _LAYOUT) -> list[str]:
    """Return the command that lists jobs or steps; `which` are options that choose. A job begins with MARK."""
    return ["squeue", "--noheader", *which, f"--format={columns}"]


def list_jobs(job_ids: Sequence[str]) -> list[str]:
    """Return the command that lists these jobs, with ended ones that the controller still knows; of many, all."""
    which = f"--user={user()}" if len(job_ids) > MANY else f"--jobs={','.join(job_ids)}"
    return list_queue("--states=all", which)


def list_accounted(job_ids: Sequence[str], since: "datetime | None" = None) -> list[str]:
    """Return the command that lists jobs of the accounting; of many, all that the user has submitted `since`."""
    which = [f"--jobs={','.join(job_ids)}"]
    if len(job_ids) > MANY:
        start = (since or datetime.fromtimestamp(0).astimezone()).strftime("%Y-%m-%dT%H:%M:%S")
        which = [f"--user={user()}", f"--starttime={start}"]
    return ["sacct", "--parsable2", "--allocations", "--duplicates", *which, f"--format={_COLUMNS}"]


def list_accounts(*what: str, columns: str) -> list[str]:
    """Return the command that lists users, QOS or clusters of the accounting."""
    return ["sacctmgr", "--noheader", "--parsable2", "show", *what, f"format={columns}"]


def list_nodes(*which: str, columns: str = "%N") -> list[str]:
    """Return the command that lists nodes in groups by partition; with `--Node` in `which` each has a line."""
    return ["sinfo", "--noheader", *which, f"--format={columns}"]


def show(*what: str) -> list[str]:
    """Return the command that shows all values of jobs, nodes, partitions or the configuration, each in one line."""
    return ["scontrol", "--oneliner", "show", *what]


def requeue(job_id: str) -> list[str]:
    """Return the command that requeues a running job; a cancelled job stays cancelled."""
    return ["scontrol", "requeue", "Incomplete", job_id]


def update(job_id: str, key: str, value: str) -> list[str]:
    """Return the command that changes one value of a job in the queue."""
    return ["scontrol", "update", f"JobId={job_id}", f"{key}={value}"]


def cancel(*job_ids: str, signal: str = "") -> list[str]:
    """Return the command that cancels jobs or steps; with a signal it sends that instead."""
    return ["scancel", *([f"--signal={signal}"] if signal else []), *job_ids]


def run_beside(
    number: int, node: str, *words: str, options: Sequence[str] = ("--gres=none", "--input=none")
) -> list[str]:
    """Return the command that runs a program once on a node of a running job, beside what runs there.

    Without these options it has the job's GPUs, and what a person types.
    """
    where = [f"--jobid={number}", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]
    return ["srun", "--overlap", *where, "--mem=0", "--mpi=none", "--quiet", *options, *words]
