"""`slurmddp requeue`: jobs back into the queue, at a person's wish."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from slurmddp.cli.bulk_options import all_option, check_words, confirm, yes_option
from slurmddp.cli.completion import targets_argument
from slurmddp.cli.job_options import runs_dir_option, tell
from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.runs import lookup as naming
from slurmddp.slurm.job_info import JobInfo
from slurmddp.submission import cancel as cancelling
from slurmddp.submission import requeue as requeuing


@click.command()
@targets_argument
@click.option("-x", "--exclude", multiple=True, metavar="NODE", help="Keep it off this node from now on. Repeatable.")
@runs_dir_option
@all_option("Every job that runs of the runs here.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; of several a list.")
def requeue(
    words: tuple[str, ...], exclude: tuple[str, ...], runs_dir: str, *, every: bool, yes: bool, as_json: bool
) -> int:
    """Put jobs back into the queue, to start again in seconds; stdout is the id of each.

    One is told to stop, saves if it can within Slurm's KillWait, keeps its id, and goes on from its last checkpoint.
    A job that waits already for its next start is told to start too. A cancelled or ended one does not come back:
    submit its name again. Of several, one that cannot come back does not keep the others.
    """
    check_words(words, every=every)
    failed: list[SlurmddpError] = []
    job_ids = list(_all(runs_dir, yes=yes)) if every else _named(words, runs_dir, failed)
    done = []
    for job_id in dict.fromkeys(job_ids):
        try:
            done.append(requeuing.requeue(job_id, exclude=exclude, environ=os.environ, notice=tell))
        except SlurmddpError as error:
            failed.append(error)
            continue
        if not as_json:
            click.echo(job_id)
    if as_json and (done or every):
        click.echo(json.dumps(_result(done[0]) if len(words) == 1 else [_result(job) for job in done]))
    for earlier in failed[:-1]:
        tell(f"Error: {earlier}")
    if failed:
        raise failed[-1]
    return 0


def _named(words: Sequence[str], runs_dir: str, failed: list[SlurmddpError]) -> list[str]:
    """Return the jobs that are meant; `failed` gets why a run has none."""
    found = []
    for word in words:
        try:
            found.append(requeuing.find(word, runs_dir, os.environ))
        except ClusterError as error:
            failed.append(error)
    return found


def _all(runs_dir: str, *, yes: bool) -> Iterator[str]:
    running = [job for job in cancelling.unfinished(naming.find((), runs_dir), os.environ) if job.phase == "running"]
    confirm("Requeue", [f"{job.job_id} ({job.name})" for job in running], yes=yes)
    if not running:
        tell("none of the jobs here runs; nothing was requeued")
    yield from (job.job_id for job in running)


def _result(job: JobInfo) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "name": job.name,
        "state": job.state,
        "reason": job.reason,
        "restarts": job.restarts,
        "eligible": job.eligible.isoformat() if job.eligible else None,
        "exclude": job.excluded_nodes,
    }
