"""`slurmddp requeue`: requeue jobs at the user's request."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import TEXT, all_option, check_targets, confirm, runs_dir_option, yes_option
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs import lookup
from slurmddp.slurm.job_info import JobInfo
from slurmddp.submission import cancel as cancelling
from slurmddp.submission import requeue as requeuing


@click.command()
@targets_argument
@click.option(
    *("-x", "--exclude"),
    type=TEXT,
    multiple=True,
    metavar="NODE",
    help="Do not use this node from now on. Repeatable.",
)
@runs_dir_option
@all_option("Requeue all running jobs of the runs in this folder.")
@yes_option
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
