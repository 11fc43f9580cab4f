"""`slurmddp requeue`: a job back into the queue, at a person's wish."""

import json
import os
from typing import Any

import click

from slurmddp import requeue as requeuing
from slurmddp.cli.options import runs_dir_option, tell
from slurmddp.slurm import JobRecord


@click.command()
@click.argument("target", metavar="JOBID|RUN")
@click.option("-x", "--exclude", multiple=True, metavar="NODE", help="Keep it off this node from now on. Repeatable.")
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def requeue(target: str, exclude: tuple[str, ...], runs_dir: str, *, as_json: bool) -> None:
    """Put a job back into the queue, to start again in seconds; stdout is its id alone.

    It is told to stop, saves if it can within Slurm's KillWait, keeps its id, and goes on from its last checkpoint.
    A job that waits already for its next start is told to start too. A cancelled or ended one does not come back:
    submit its name again.
    """
    job = requeuing.requeue(
        requeuing.find(target, runs_dir, os.environ), exclude=exclude, environ=os.environ, notice=tell
    )
    click.echo(json.dumps(_result(job)) if as_json else job.job_id)


def _result(job: JobRecord) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "restarts": job.restarts,
        "eligible": job.eligible.isoformat() if job.eligible else None,
        "exclude": job.excluded,
    }
