"""`slurmddp cancel`: jobs out of the queue, and off their nodes."""

import json
import os
from dataclasses import asdict

import click

from slurmddp.cli.bulk_options import all_option, check_words, confirm, yes_option
from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_options import runs_dir_option, tell
from slurmddp.runs import lookup as naming
from slurmddp.submission import cancel as cancelling
from slurmddp.text import printable


@click.command()
@targets_argument
@runs_dir_option
@all_option("Every job that waits or runs of the runs here.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def cancel(words: tuple[str, ...], runs_dir: str, *, every: bool, yes: bool, as_json: bool) -> None:
    """Cancel jobs; stdout is the id of each that was. A run's name means all its jobs that wait or run.

    What was cancelled stays cancelled: a job that Slurm is just putting back into the queue is cancelled again. It
    ends when the jobs have left their nodes.
    """
    check_words(words, every=every)
    explain = (lambda _: None) if every else (lambda line: tell(printable(line)))
    jobs = cancelling.unfinished(naming.find(words, runs_dir), os.environ, explain)
    if every:
        confirm("Cancel", [f"{job.job_id} ({job.name})" for job in jobs], yes=yes)
    if not jobs:
        tell("none of these jobs waits or runs; nothing was cancelled")
    done = cancelling.cancel(jobs, os.environ, tell)
    if as_json:
        click.echo(json.dumps([asdict(job) for job in done]))
        return
    for job in done:
        click.echo(job.job_id)
