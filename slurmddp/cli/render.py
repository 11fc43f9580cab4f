"""`slurmddp render`: the script of a job, for review."""

import sys
from pathlib import Path
from typing import Any

import click

from slurmddp.cli.options import SYNOPSIS, JobCommand, job_options, resolve, write


@click.command(cls=JobCommand, options_metavar=SYNOPSIS)
@job_options()
def render(job_file: Path | None, words: tuple[str, ...], **parameters: Any) -> None:
    """Print the script of a job; nothing is written or submitted.

    The bytes are those that `submit` hands to sbatch, so `slurmddp render ... | sbatch` works.
    """
    from slurmddp.script import script

    write(sys.stdout, script(resolve(job_file, words, parameters).spec))
