"""`slurmddp cancel` and `slurmddp requeue`: what a user asks of jobs that run or wait."""

import os
from typing import Final

import click

from slurmddp.cli.run_arguments import TEXT, complete_target, runs_dir_option, targets_argument
from slurmddp.cli.screen import confirm, print_message, print_result
from slurmddp.errors import UsageError
from slurmddp.runs import lookup
from slurmddp.submission import cancel as cancelling
from slurmddp.submission import requeue as requeuing
from slurmddp.text import count, escape_text, list_some

_MOST_LISTED: Final = 10


@click.command()
@targets_argument
@runs_dir_option
@click.option("--all", "every", is_flag=True, help="Cancel all pending and running jobs of the runs in this folder.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def cancel(words: tuple[str, ...], runs_dir: str, *, every: bool, yes: bool, as_json: bool) -> None:
    """Cancel jobs; stdout is the ids of the cancelled jobs. A run's name means all its pending and running jobs.

    Cancelled jobs are not requeued: a job that Slurm is requeueing at this moment is cancelled again. The command
    returns when the jobs have left their nodes.
    """
    if every and words:
        raise UsageError(f"--all cannot be combined with names ({' '.join(map(escape_text, words))}); give one of them")
    if not (every or words):
        raise UsageError("name the runs or jobs, or give --all; `slurmddp status` lists them")
    explain = (lambda _: None) if every else (lambda line: print_message(escape_text(line)))
    jobs = cancelling.unfinished_jobs(lookup.find(words, runs_dir), os.environ, explain)
    if every and jobs and not yes:
        selected = count(len(jobs), "job")
        print_message(f"  {escape_text(list_some([f'{job.job_id} ({job.name})' for job in jobs], _MOST_LISTED))}")
        confirm(f"Cancel {selected}?", f"--all selects {selected}, and there is no terminal to ask; add --yes")
    if not jobs:
        print_message("none of these jobs is pending or running; nothing was cancelled")
    cancelled = cancelling.cancel(jobs, os.environ, print_message)
    print_result({"jobs": [job._asdict() for job in cancelled]}, [job.job_id for job in cancelled], as_json=as_json)


@click.command()
@click.argument("word", type=TEXT, metavar="RUN|JOBID", shell_complete=complete_target)
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def requeue(word: str, runs_dir: str, *, as_json: bool) -> None:
    """Requeue a job, so that it starts again in seconds; stdout is its id.

    A running job gets a signal to stop, saves a checkpoint if Slurm's KillWait is long enough, keeps its id, and
    resumes from its last checkpoint. A job that is already requeued and waits may start at once. A cancelled or ended
    job cannot be requeued: submit it again, as in `slurmddp submit jobs/RUN/spec.toml`.
    """
    job_id = requeuing.find_job(word, runs_dir, os.environ)
    job = requeuing.requeue(job_id, environ=os.environ, notice=print_message)
    record = {name: getattr(job, name) for name in ("job_id", "name", "state", "reason", "restarts")}
    record["eligible"] = job.eligible.isoformat() if job.eligible else None
    print_result({"jobs": [record]}, [job.job_id], as_json=as_json)
