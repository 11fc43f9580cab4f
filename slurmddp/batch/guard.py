"""Requeues a job whose batch host is lost: with --no-kill, Slurm leaves it running, without its script, to its limit.

The other ranks, which wait for those of that node, save the last finished step before. The supervisor of a job with
spares starts it on another node: `python -m slurmddp.batch.guard RUN JOB RESTARTS HOST`.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp.batch.controller import Controller
from slurmddp.batch.supervisor import Clock, write_line
from slurmddp.errors import ClusterError
from slurmddp.runs import events
from slurmddp.runs.events import Author, JobRequeue
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.client import spread
from slurmddp.slurm.hostlist import names_in
from slurmddp.slurm.job_info import JobInfo
from slurmddp.slurm.states import find_state

ASK_S: Final = 10.0
SAVE_S: Final = 10.0
"""For the ranks to save before the requeue, which leaves them KillWait more."""


def main(words: list[str]) -> None:
    """Guard the batch host of a job; return when the job has ended, or was requeued."""
    folder, job_id, restarts, host = words
    run = RunDir(Path(folder))
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # the guard is a step of the job, too, and all get it
    os.dup2(os.open(run.batch_log(job_id), os.O_WRONLY | os.O_APPEND), 1)  # the srun of this step was on that host
    guard(Controller(os.environ), run, job_id, int(restarts), host)


def guard(slurm: Controller, run: RunDir, job_id: str, restarts: int, host: str, clock: Clock = time) -> None:
    """Requeue the job, or end it where it may not be requeued, when Slurm has taken `host` from it."""
    is_told = False
    while True:
        clock.sleep(spread(ASK_S))
        try:
            job = slurm.job(job_id)
            if job is None or not find_state(job.state).holds_nodes or (job.restarts or 0) != restarts:
                return
            if host in names_in(job.nodes):
                continue
            if not is_told:
                attempt = [f"{restarts}.0", *run.attempts(job_id)][-1]
                with suppress(OSError, ClusterError):  # then some steps are taken again
                    run.hang(job_id, attempt).touch()
                    slurm.send_signal(job_id, "USR2")
                    clock.sleep(SAVE_S)
                _tell(run, job, attempt, host)
                is_told = True
            (slurm.cancel if job.requeue is False else slurm.requeue)(job_id)
        except ClusterError as error:
            write_line(f"the guard of {host}: {error}")


def _tell(run: RunDir, job: JobInfo, attempt: str, host: str) -> None:
    """Note what is done in the batch log, and a requeue in the events; Slurm then ends this process, too."""
    reason = f"lost node {host}, on which the batch script ran"
    if job.requeue is False:
        return write_line(f"{reason}; the job may not be requeued (Requeue=0), and is cancelled")
    write_line(f"back into the queue: {reason}")
    author = Author(job=job.job_id, attempt=attempt, host=os.environ.get("SLURMD_NODENAME", ""))
    return events.append(run, author, JobRequeue(reason=reason, excluded=()))


if __name__ == "__main__":
    main(sys.argv[1:])
