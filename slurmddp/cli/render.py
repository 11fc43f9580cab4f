"""`slurmddp render`: the script of a job, for review."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from slurmddp.cli.dependency_options import after_options, behind
from slurmddp.cli.job_options import SYNOPSIS, JobCommand, job_options, resolve, tell, tell_of_late, write
from slurmddp.cli.sweep_options import set_options, swept


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
@set_options
@after_options
@click.option("--explain", is_flag=True, help="Say on stderr what the cluster has decided, and why.")
def render(
    job_file: Path | None,
    words: tuple[str, ...],
    *,
    sets: tuple[str, ...],
    side_by_side: bool,
    max_parallel: int | None,
    after: tuple[str, ...],
    after_ok: tuple[str, ...],
    explain: bool,
    **parameters: Any,
) -> None:
    """Print the script of a job; nothing is written or submitted.

    The bytes are those that `submit` hands to sbatch, so `slurmddp render ... | sbatch` works.
    With --set it is the script of a sweep.
    """
    from slurmddp.cluster.request import fitted
    from slurmddp.script.build import script

    resolved = behind(resolve(job_file, words, parameters), after, after_ok)
    tell_of_late(resolved.spec.command)
    request = swept(fitted(resolved, os.environ), sets, side_by_side, max_parallel)
    write(sys.stdout, script(request.resolved.spec, array=request.array))
    if explain:
        for line in request.explained():
            tell(line)
