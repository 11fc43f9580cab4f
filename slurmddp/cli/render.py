"""`slurmddp render`: the script of a job, for review."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from slurmddp.cli.options import SYNOPSIS, JobCommand, job_options, resolve, tell, write


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
@click.option("--explain", is_flag=True, help="Say on stderr what the cluster has decided, and why.")
def render(job_file: Path | None, words: tuple[str, ...], *, explain: bool, **parameters: Any) -> None:
    """Print the script of a job; nothing is written or submitted.

    The bytes are those that `submit` hands to sbatch, so `slurmddp render ... | sbatch` works.
    """
    from slurmddp.request import fitted
    from slurmddp.script import script

    request = fitted(resolve(job_file, words, parameters), os.environ)
    write(sys.stdout, script(request.resolved.spec))
    if explain:
        for line in request.explained():
            tell(line)
