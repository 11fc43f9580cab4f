"""`slurmddp run`: run a job on this machine, without Slurm."""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import click

from slurmddp.cli.job_command import SYNOPSIS, JobCommand, job_options, print_message, resolve_job
from slurmddp.cli.progress_bar import show_progress
from slurmddp.cli.request_options import print_reading, with_ranks
from slurmddp.script.build import check_program, check_pythons, check_variables
from slurmddp.submission import run_local
from slurmddp.submission.prepare_data import prepare

_LOCAL_OPTIONS = (
    "gpus-per-node",
    "ntasks-per-node",
    "job-name",
    "rendezvous",
    "interface",
    "nccl-debug",
    "no-python",
    "python",
    "env",
    "preflight",
    "tracker-ids",
    "runs-dir",
    "profile",
)


@click.command(cls=JobCommand, options_metavar=SYNOPSIS, epilog="--gpus-per-node 8 train.py --lr 0.1")
@job_options(_LOCAL_OPTIONS)
@click.option("--devices", metavar="N,N...", help="GPUs to use, as in 0,2 [default: as many as there are ranks].")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; the output goes to stderr.")
def run(job_file: Path | None, words: tuple[str, ...], *, devices: str | None, as_json: bool, **parameters: Any) -> int:
    """Run the same job on this machine, without Slurm (torchrun underneath).

    The output of rank 0 is printed here; each rank also has a file in the run's folder. Options for nodes, queues and
    set-up in a job file are ignored.
    """
    resolved = with_ranks(resolve_job(job_file, words, parameters))
    spec = resolved.spec
    print_reading(resolved, f"--ntasks-per-node {spec.tasks_per_node}")
    check_program(spec)
    check_pythons(spec, "check the path")
    check_variables(spec, os.environ)
    prepare(spec)
    plan = run_local.plan(spec, devices=devices, environ=os.environ)
    if spec.nodes > 1:
        print_message(f"the job has {spec.nodes} nodes; only the ranks of one node run here")
    status = _perform(plan, sys.stderr if as_json else sys.stdout)
    print_message(f"run {spec.job_name}: {plan.run.path}")
    if as_json:
        click.echo(json.dumps({"run": str(plan.run.path), "job": plan.job_id, "status": status}))
    if status == 0:
        return 0
    print_message(
        run_local.failure_reason(plan)
        or f"the run ended with status {status}, and no rank left a reason; see {plan.console_log}"
    )
    return 1


def _perform(plan: run_local.LocalRun, stream: TextIO) -> int:
    try:
        with show_progress(plan.run, plan.job_id, stream, errors=sys.stderr) as show:
            return run_local.perform(plan, show=show)
    except KeyboardInterrupt:
        print_message(f"interrupted; the output is in {plan.console_log.parent}")
        raise
