"""`slurmddp diagnose`: show why a job failed, and what to type next."""

import json
import os
from dataclasses import asdict

import click

from slurmddp import diagnose as diagnosing
from slurmddp.cli.job_command import runs_dir_option
from slurmddp.monitoring.logs.select_files import find_newest
from slurmddp.runs import lookup


@click.command()
@click.argument("target", metavar="[RUN|JOBID]", required=False)
@runs_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def diagnose(target: str | None, runs_dir: str, *, as_json: bool) -> None:
    """Show why a job failed: the cause, the first rank and its host, the log lines that show it, what to type next.

    RUN is a run's name or folder, and means its last job; the default is the run that was submitted last. The id of a
    job that slurmddp did not submit works too. Exit status: 0 if there is an answer, also if the cause is unknown or
    nothing failed; 2 for an unknown run; 3 if there are no files of the job, and Slurm does not answer or know it.
    """
    (target_found,) = lookup.find([target or find_newest(runs_dir)], runs_dir, local=True)
    found = diagnosing.diagnose(target_found.run, target_found.jobs[-1], os.environ)
    click.echo(json.dumps(asdict(found)) if as_json else "\n".join(diagnosing.format_diagnosis(found)))
