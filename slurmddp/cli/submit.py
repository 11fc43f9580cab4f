"""`slurmddp submit`: the job into the queue, and if wanted its end awaited."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmddp.cli.dependency_options import after_options, behind
from slurmddp.cli.job_options import SYNOPSIS, JobCommand, job_options, resolve, tell, tell_of_late, write
from slurmddp.cluster.request import Request, fitted
from slurmddp.errors import SlurmddpError
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.environment import scrubbed
from slurmddp.submission import submit as submitting
from slurmddp.submission.sbatch import Submitted

if TYPE_CHECKING:
    from slurmddp.diagnose import Diagnosis


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
@click.option("--continue", "change", is_flag=True, help="Go on with a run though its COMMAND has changed.")
@click.option("--dry-run", is_flag=True, help="Print the script and what sbatch says to it; nothing is queued.")
@click.option(
    "--chain",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Queue N more jobs of the run, each to go on when the one before it has ended.",
)
@after_options
@click.option("--force", is_flag=True, help="Submit even what seems never to start here.")
@click.option("--wait", is_flag=True, help="Wait for the job's end; exit 0 only if it succeeded.")
@click.option("--follow", is_flag=True, help="As --wait, and show the job's output on stderr.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Say which variables, of another job's or rank's, are left out.")
def submit(  # noqa: PLR0913 - an argument for each option
    job_file: Path | None,
    words: tuple[str, ...],
    *,
    change: bool,
    dry_run: bool,
    chain: int,
    after: tuple[str, ...],
    after_ok: tuple[str, ...],
    force: bool,
    wait: bool,
    follow: bool,
    as_json: bool,
    verbose: bool,
    **parameters: Any,
) -> int:
    """Submit a job; stdout is its id alone.

    Without COMMAND the bundled worker trains.
    """
    if verbose:
        tell(f"left out of sbatch's environment: {' '.join(scrubbed(os.environ)) or 'nothing'}")
    request = fitted(behind(resolve(job_file, words, parameters), after, after_ok), os.environ)
    tell_of_late(request.resolved.spec.command)
    if dry_run:
        return _dry_run(request, change=change, force=force, as_json=as_json)
    waits = wait or follow
    tell_id = (lambda _: None) if waits and as_json else partial(_print_id, as_json=as_json)
    done = submitting.submit(
        request, change=change, environ=os.environ, notice=tell, chain=chain, force=force, accepted=tell_id
    )
    result = _result(done)
    if done.unrecorded:
        raise SlurmddpError(f"job {done.job_id.number} is queued, but could not be recorded: {done.unrecorded}")
    if done.broken:
        raise SlurmddpError(
            f"job {done.job_id.number} is queued, but only {len(done.chain)} of the {chain} after it: {done.broken}"
        )
    if done.chain:
        tell(f"after it: {' '.join(job.number for job in done.chain)}")
    tell(f"folder of the run: {done.run.path}")
    return _wait(done, result, show=follow, as_json=as_json) if waits else 0


def _dry_run(request: Request, *, change: bool, force: bool, as_json: bool) -> int:
    text, said = submitting.dry_run(request, change=change, environ=os.environ, force=force)
    if as_json:
        click.echo(json.dumps({"script": text.decode(), "sbatch": said}))
        return 0
    write(sys.stdout, text)
    tell(said)
    return 0


def _result(done: Submitted) -> dict[str, Any]:
    return {
        "job": done.job_id.number,
        "cluster": done.job_id.cluster,
        "chain": [job.number for job in done.chain],
        "name": done.run.path.name,
        "run": str(done.run.path),
        "script": str(done.run.submitted_script(done.job_id.number)),
    }


def _print_id(done: Submitted, *, as_json: bool) -> None:
    _print(_result(done), as_json=as_json)


def _print(result: dict[str, Any], *, as_json: bool) -> None:
    click.echo(json.dumps(result) if as_json else result["job"])
    sys.stdout.flush()


def _wait(done: Submitted, result: dict[str, Any], *, show: bool, as_json: bool) -> int:
    from slurmddp.cli.status_format import block
    from slurmddp.diagnose import as_json as as_value
    from slurmddp.diagnose import lines
    from slurmddp.monitoring import follow as following
    from slurmddp.monitoring.status import look
    from slurmddp.runs.lookup import Target

    number = done.job_id.number
    try:
        job = following.wait(done.run, number, os.environ, show=tell if show else None, notice=tell)
    except (KeyboardInterrupt, SlurmddpError) as error:
        if as_json:
            _print(result, as_json=True)
        if isinstance(error, SlurmddpError):
            raise
        tell(f"job {number} goes on without you; `slurmddp cancel {number}` ends it")
        raise
    well = job.phase == "done"
    why = None if well else _diagnosis(done.run, number)
    if as_json:
        found = as_value(why) if why else None
        _print(result | {"state": job.state, "reason": job.reason, "diagnosis": found}, as_json=True)
    for status in look([Target(done.run, (number,))], os.environ):
        for line in block(status):
            tell(line)
    for line in lines(why) if why else ():
        tell(line)
    return 0 if well else 1


def _diagnosis(run: RunDir, job_id: str) -> "Diagnosis | None":
    """Return why a job failed; None, and a word about it, when nobody tells."""
    from slurmddp.diagnose import diagnose

    try:
        return diagnose(run, job_id, os.environ)
    except SlurmddpError as error:
        tell(f"why it failed is not known: {error}")
        return None
