"""`slurmddp render`: print the batch script of a job."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from slurmddp.cli.job_command import JobCommand, print_message, write_bytes
from slurmddp.cli.request_options import build_request, dependency_options, sweep_options


@click.command(cls=JobCommand)
@sweep_options
@dependency_options
@click.option("--explain", is_flag=True, help="Print on stderr which values come from the cluster, and why.")
def render(job_file: Path | None, words: tuple[str, ...], *, explain: bool, **parameters: Any) -> None:
    """Print the batch script of a job; nothing is written or submitted.

    The output is exactly what `submit` gives to sbatch, so `slurmddp render ... | sbatch` works.
    With --set it is the script of a sweep. To add lines to the script, there is --setup, and to change it, --template;
    --help-all shows both.
    """
    from slurmddp.script.build import build_script

    request = build_request(job_file, words, parameters)
    if (Path(request.resolved.spec.runs_dir) / request.resolved.spec.job_name).exists():
        from slurmddp.submission.compatibility import choose_run

        request = choose_run(request, os.environ, notice=print_message, ask=lambda _: None)
    write_bytes(sys.stdout, build_script(request.resolved.spec, request.array).text)
    if explain:
        for line in request.explained():
            print_message(line)
