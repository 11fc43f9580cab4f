"""`slurmddp diagnose`: show why a job failed, and what to type next."""

import json
import os
from dataclasses import asdict

import click

from slurmddp import diagnose as diagnosing
from slurmddp.cli.job_command import runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.runs.lookup import find
from slurmddp.slurm.job_info import JobRef, is_job_id


@click.command()
@click.argument("target", metavar="[RUN|JOBID]", required=False)
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def diagnose(target: str | None, runs_dir: str, *, as_json: bool) -> None:
    """Show why a job failed: the cause, the first rank and its host, the log lines that show it, what to type next.

    RUN is a run's name or folder, and means its last job; the default is the run that was started last. The id of a
    job that slurmddp did not submit works too. Exit status: 0 if there is an answer, also if the cause is unknown or
    nothing failed; 2 for an unknown run; 3 if there are no files of the job, and Slurm does not answer or know it.
    """
    run, job_id = _find_job(target, runs_dir)
    found = diagnosing.diagnose(run, job_id, os.environ)
    click.echo(json.dumps(asdict(found)) if as_json else "\n".join(diagnosing.format_diagnosis(found)))


def _find_job(target: str | None, runs_dir: str) -> tuple[RunDir | None, str]:
    if target is None:
        target = _newest_run(runs_dir)
    if not is_job_id(target):
        local = _newest_local_job(
            RunDir.named(runs_dir, target) if "/" not in target else RunDir(RunDir.named(".", target).path)
        )
        if local:
            return local
    found = find([target], runs_dir)[0]
    return found.run, found.jobs[-1]


def _newest_run(runs_dir: str) -> str:
    """Return the name of the run that was started last; raise UsageError if there is no run."""
    logs = RunDir.named(runs_dir, "x").path.parent.glob("*/logs")
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise UsageError(f"there is no run in {runs_dir}; give the id of a job, or --runs-dir")
    return newest.parent.name


def _newest_local_job(run: RunDir) -> tuple[RunDir, str] | None:
    """Return the run and its newest job, if `slurmddp run` started that job; None otherwise."""
    jobs = [path for path in run.logs.glob("*") if path.is_dir()] if run.logs.is_dir() else []
    newest = max(jobs, key=lambda path: path.stat().st_mtime, default=None)
    return (run, newest.name) if newest and JobRef.parse(newest.name).is_local else None
