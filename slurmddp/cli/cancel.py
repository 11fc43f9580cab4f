"""`slurmddp cancel`: cancel jobs of runs."""

import json
import os
from dataclasses import asdict

import click

from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import all_option, check_targets, confirm, runs_dir_option, yes_option
from slurmddp.runs import lookup
from slurmddp.submission import cancel as cancelling
from slurmddp.text import escape_text


@click.command()
@targets_argument
@runs_dir_option
@all_option("Cancel all pending and running jobs of the runs in this folder.")
@yes_option
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
