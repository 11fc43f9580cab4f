"""`slurmddp cancel` and `slurmddp requeue`: what a user asks of jobs that run or wait."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import TEXT, runs_dir_option
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs import lookup
from slurmddp.slurm.job_info import JobInfo
from slurmddp.submission import cancel as cancelling
from slurmddp.submission import requeue as requeuing
from slurmddp.text import count, escape_text

_MOST_LISTED: Final = 10

_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@click.command()
@targets_argument
@runs_dir_option
@click.option("--all", "every", is_flag=True, help="Cancel all pending and running jobs of the runs in this folder.")
@_yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def cancel(words: tuple[str, ...], runs_dir: str, *, every: bool, yes: bool, as_json: bool) -> None:
    """Cancel jobs; stdout is the ids of the cancelled jobs. A run's name means all its pending and running jobs.

    Cancelled jobs are not requeued: a job that Slurm is requeueing at this moment is cancelled again. The command
    returns when the jobs have left their nodes.
    """
    check_targets(words, every=every)
    explain = (lambda _: None) if every else (lambda line: print_message(escape_text(line)))
    jobs = cancelling.unfinished_jobs(lookup.find(words, runs_dir), os.environ, explain)
    if every:
        confirm("Cancel", [f"{job.job_id} ({job.name})" for job in jobs], yes=yes)
    if not jobs:
        print_message("none of these jobs is pending or running; nothing was cancelled")
    cancelled = cancelling.cancel(jobs, os.environ, print_message)
    if as_json:
        click.echo(json.dumps([asdict(job) for job in cancelled]))
        return
    for job in cancelled:
        click.echo(job.job_id)


@click.command()
@targets_argument
@click.option(
    *("-x", "--exclude"), type=TEXT, multiple=True, metavar="NODE", help="Do not use this node from now on. Repeatable."
)
@runs_dir_option
@click.option("--all", "every", is_flag=True, help="Requeue all running jobs of the runs in this folder.")
@_yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; for several jobs a list.")
def requeue(
    words: tuple[str, ...], exclude: tuple[str, ...], runs_dir: str, *, every: bool, yes: bool, as_json: bool
) -> int:
    """Requeue jobs, so that they start again in seconds; stdout is the ids of the requeued jobs.

    A running job gets a signal to stop, saves a checkpoint if Slurm's KillWait is long enough, keeps its id, and
    resumes from its last checkpoint. A job that is already requeued and waits may start at once. A cancelled or ended
    job cannot be requeued: submit it again, as in `slurmddp submit jobs/RUN/spec.toml`. If one of several jobs cannot
    be requeued, the others still are.
    """
    check_targets(words, every=every)
    failed: list[SlurmddpError] = []
    job_ids = list(_running_jobs(runs_dir, yes=yes)) if every else _find_jobs(words, runs_dir, failed)
    done = []
    for job_id in dict.fromkeys(job_ids):
        try:
            done.append(requeuing.requeue(job_id, exclude=exclude, environ=os.environ, notice=print_message))
        except SlurmddpError as error:
            failed.append(error)
            continue
        if not as_json:
            click.echo(job_id)
    if as_json and (done or every):
        click.echo(json.dumps(_as_json(done[0]) if len(words) == 1 else [_as_json(job) for job in done]))
    for earlier in failed[:-1]:
        print_message(f"Error: {earlier}")
    if failed:
        raise failed[-1]
    return 0


def _find_jobs(words: Sequence[str], runs_dir: str, failed: list[SlurmddpError]) -> list[str]:
    """Return the jobs that words name; append the error of each word that names none to `failed`."""
    found = []
    for word in words:
        try:
            found.append(requeuing.find_job(word, runs_dir, os.environ))
        except UsageError:
            raise
        except SlurmddpError as error:
            failed.append(error)
    return found


def _running_jobs(runs_dir: str, *, yes: bool) -> Iterator[str]:
    unfinished = cancelling.unfinished_jobs(lookup.find((), runs_dir), os.environ, verb="requeued")
    running = [job for job in unfinished if job.phase == "running"]
    confirm("Requeue", [f"{job.job_id} ({job.name})" for job in running], yes=yes)
    if not running:
        print_message("none of the jobs in this folder is running; nothing was requeued")
    yield from (job.job_id for job in running)


def _as_json(job: JobInfo) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "restarts": job.restarts,
        "eligible": job.eligible.isoformat() if job.eligible else None,
        "exclude": job.excluded_nodes,
    }


def check_targets(words: Sequence[str], *, every: bool) -> None:
    """Raise UsageError unless either jobs are named or `--all` is given."""
    if every and words:
        raise UsageError(f"--all cannot be combined with names ({' '.join(map(escape_text, words))}); give one of them")
    if not (every or words):
        raise UsageError("name the runs or jobs, or give --all; `slurmddp status` lists them")


def confirm(verb: str, jobs: Sequence[str], *, yes: bool) -> None:
    """Ask for confirmation; raise Abort if it is refused, UsageError if there is no terminal to ask on."""
    if yes or not jobs:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"--all selects {count(len(jobs), 'job')}, and there is no terminal to ask; add --yes")
    for job in jobs[:_MOST_LISTED]:
        print_message(f"  {escape_text(job)}")
    if len(jobs) > _MOST_LISTED:
        print_message(f"  and {len(jobs) - _MOST_LISTED} more")
    click.confirm(f"{verb} {count(len(jobs), 'job')}?", abort=True, err=True)
