"""One squeue, one sacct, and scontrol for a few: rows of jobs, whatever a site prints around them. No files.

Every program gets one time limit, and is asked a second time only when its answer was lost and there is time left.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from slurmddp import slurm
from slurmddp.errors import ClusterError
from slurmddp.slurmjobs.parse import MARK, of_record, parse_accounting, parse_queue
from slurmddp.slurmjobs.row import Heard

TRIES: Final = 2
PAUSE_S: Final = 0.5
MANY: Final = 500
"""From so many jobs on all jobs of the user are listed: squeue compares each job with each id, and Linux takes no
argument of more than 128 KiB."""

_FIELDS: Final = {
    "id": "%i",
    "state": "%T",
    "submit": "%V",
    "start": "%S",
    "end": "%e",
    "elapsed": "%M",
    "limit": "%l",
    "nodes": "%N",
    "partition": "%P",
    "user": "%u",
    "reason": "%r",
    "name": "%j",
}
_COLUMNS: Final = "JobID,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,ExitCode,Partition,NodeList,User,Reason,JobName"
_FEWEST_COLUMNS: Final = "JobID,State,Submit,JobName"
_STEPS_COLUMNS: Final = "JobID,State,Submit,ExitCode,NodeList,Reason,MaxRSS,JobName"

Environ = Mapping[str, str]


def queue(job_ids: Sequence[str], environ: Environ, *, timeout_s: float) -> Heard:
    """Return what squeue knows of these jobs, ended ones too; for many, what it knows of the user's."""

    def read(answer: slurm.Answer) -> Heard:
        if answer.status != 0 and "Invalid job id" not in answer.stderr:
            return _silent(answer)
        return Heard(tuple(parse_queue(answer.stdout)))

    return _heard(queue_command(job_ids), read, environ, timeout_s)


def accounting(job_ids: Sequence[str], since: datetime | None, environ: Environ, *, timeout_s: float) -> Heard:
    """Return what sacct knows of these jobs, every return to the queue as a row of its own, the oldest first.

    For many it is asked for those that the user has submitted `since`.
    """
    heard = _heard(accounting_command(job_ids, since, _COLUMNS), _table, environ, timeout_s)
    if "Invalid field requested" in heard.silence:
        heard = _heard(accounting_command(job_ids, since, _FEWEST_COLUMNS), _table, environ, timeout_s)
    return heard


def last_run(job_id: str, environ: Environ, *, timeout_s: float) -> Heard:
    """Return what sacct knows of one job since it last came into the queue, with the memory that its steps took."""
    return _heard(steps_command(job_id), _table, environ, timeout_s)


def _table(answer: slurm.Answer) -> Heard:
    return _silent(answer) if answer.status != 0 else parse_accounting(answer.stdout)


def controller(job_id: str, environ: Environ, *, timeout_s: float) -> Heard:
    """Return what the controller holds of one job; of an array, of each task."""

    def read(answer: slurm.Answer) -> Heard:
        if answer.status != 0 and "Invalid job id" not in answer.stderr:
            return _silent(answer)
        return Heard(tuple(of_record(record) for record in slurm.parse_show(answer.stdout)))

    return _heard(slurm.show_command(job_id), read, environ, timeout_s)


def queue_command(job_ids: Sequence[str]) -> list[str]:
    """Return the command that lists jobs, a line each that nothing else can be taken for."""
    which = f"--user={slurm.user()}" if len(job_ids) > MANY else f"--jobs={','.join(job_ids)}"
    layout = "|".join(f"{key}={field}" for key, field in _FIELDS.items())
    return ["squeue", "--noheader", "--states=all", which, f"--format={MARK}{layout}"]


def accounting_command(job_ids: Sequence[str], since: datetime | None, columns: str) -> list[str]:
    """Return the command that lists jobs by the accounting, with the names of the columns above them."""
    which = [f"--jobs={','.join(job_ids)}"]
    if len(job_ids) > MANY:
        start = (since or datetime.fromtimestamp(0).astimezone()).strftime("%Y-%m-%dT%H:%M:%S")
        which = [f"--user={slurm.user()}", f"--starttime={start}"]
    return ["sacct", "--allocations", "--parsable2", "--duplicates", *which, f"--format={columns}"]


def steps_command(job_id: str) -> list[str]:
    """Return the command that lists one job and its steps."""
    return ["sacct", "--parsable2", f"--jobs={job_id}", f"--format={_STEPS_COLUMNS}"]


def _heard(command: Sequence[str], read: Callable[[slurm.Answer], Heard], environ: Environ, timeout_s: float) -> Heard:
    """Ask, and once more when the answer was lost; all within the time."""
    deadline = time.monotonic() + timeout_s
    heard = Heard(silence="not asked")
    for _ in range(TRIES):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            answer = slurm.ask(command, environ, timeout_s=left_s)
        except ClusterError as error:
            return Heard(silence=str(error))
        heard = read(answer)
        if not slurm.was_lost(answer):
            break
        time.sleep(min(PAUSE_S, max(0.0, deadline - time.monotonic())))
    return heard


def _silent(answer: slurm.Answer) -> Heard:
    return Heard(silence=answer.reason.rpartition("; ")[2].removeprefix("slurm_load_jobs error: "))
