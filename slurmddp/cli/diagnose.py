"""`slurmddp diagnose`: why a job failed, and what to type next."""

import json
import os

import click

from slurmddp import diagnose as diagnosing
from slurmddp.cli.job_options import runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.runs.layout import LOCAL, RunDir
from slurmddp.runs.lookup import JOB_ID, find


@click.command()
@click.argument("target", metavar="[RUN|JOBID]", required=False)
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def diagnose(target: str | None, runs_dir: str, *, as_json: bool) -> None:
    """Say why a job failed: the cause, the first rank and its host, the lines that show it, and what to type next.

    RUN is a run's name or folder, and means its last job; without it, the run that was submitted last. A job that is
    not of slurmddp can be given by its id. Ends with 0 when it was told, also that the cause is unknown or that
    nothing failed; 2 for an unknown run; 3 when Slurm does not answer, or does not know the job, and no files are here.
    """
    run, job_id = _meant(target, runs_dir)
    found = diagnosing.diagnose(run, job_id, os.environ)
    click.echo(json.dumps(diagnosing.as_json(found)) if as_json else "\n".join(diagnosing.lines(found)))


def _meant(target: str | None, runs_dir: str) -> tuple[RunDir | None, str]:
    if target is None:
        target = _newest(runs_dir)
    if not JOB_ID.fullmatch(target):
        local = _local(RunDir.named(runs_dir, target) if "/" not in target else RunDir(RunDir.named(".", target).path))
        if local:
            return local
    meant = find([target], runs_dir)[0]
    return meant.run, meant.jobs[-1]


def _newest(runs_dir: str) -> str:
    """Return the name of the run in whose logs something was started last. Raises UsageError without any."""
    logs = RunDir.named(runs_dir, "x").path.parent.glob("*/logs")
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise UsageError(f"there is no run in {runs_dir}; give a job's id, or --runs-dir")
    return newest.parent.name


def _local(run: RunDir) -> tuple[RunDir, str] | None:
    """Return the newest run on this machine of that name, where no job was started after it."""
    jobs = [path for path in run.logs.glob("*") if path.is_dir()] if run.logs.is_dir() else []
    newest = max(jobs, key=lambda path: path.stat().st_mtime, default=None)
    return (run, newest.name) if newest and newest.name.startswith(LOCAL) else None
