"""`slurmddp run`: the job on this machine."""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from slurmddp.cli.job_options import SYNOPSIS, JobCommand, job_options, resolve, tell
from slurmddp.cli.progress_bar import progress
from slurmddp.script.build import check_program
from slurmddp.submission import run_local
from slurmddp.submission.prepare_data import prepare

_LOCAL = (
    "gpus-per-node",
    "ntasks-per-node",
    "job-name",
    "init",
    "interface",
    "nccl-debug",
    "no-python",
    "python",
    "env",
    "preflight",
    "runs-dir",
    "profile",
)


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options(_LOCAL)
@click.option("--devices", metavar="N,N...", help="GPUs to use, as in 0,2 [default: as many as there are ranks].")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; the output goes to stderr.")
def run(job_file: Path | None, words: tuple[str, ...], *, devices: str | None, as_json: bool, **parameters: Any) -> int:
    """Run the same job on this machine, without Slurm (torchrun underneath).

    Rank 0 prints here; every rank has its own file in the run's folder. What a job file says of nodes, queues and
    set-up has no meaning here.
    """
    spec = resolve(job_file, words, parameters).spec
    check_program(spec)
    prepare(spec)
    plan = run_local.plan(spec, devices=devices, environ=os.environ)
    if spec.nodes > 1:
        tell(f"the job has {spec.nodes} nodes; here run the ranks of one")
    status = _perform(plan, sys.stderr if as_json else sys.stdout)
    tell(f"run {spec.job_name}: {plan.run.path}")
    if as_json:
        click.echo(json.dumps({"run": str(plan.run.path), "job": plan.job_id, "status": status}))
    if status == 0:
        return 0
    tell(run_local.cause(plan) or f"the run ended with status {status} and no rank said why; see {plan.console_log}")
    return 1


def _perform(plan: run_local.LocalRun, stream: TextIO) -> int:
    try:
        with progress(plan.run, plan.job_id, stream, errors=sys.stderr) as show:
            return run_local.perform(plan, show=show)
    except KeyboardInterrupt:
        tell(f"interrupted; the output is in {plan.console_log.parent}")
        raise
