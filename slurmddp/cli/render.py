"""`slurmddp render`: print the batch script of a job."""

import shlex
import sys
from typing import Any

import click

from slurmddp.cli.job_command import JobCommand
from slurmddp.cli.request_options import build_request, dependency_options, name_run, sweep_options
from slurmddp.cli.screen import print_message, write_bytes
from slurmddp.config import job_files
from slurmddp.errors import UsageError


@click.command(cls=JobCommand)
@sweep_options
@dependency_options
@click.option(
    "--diff", "as_diff", is_flag=True, help="Print what is added to a batch script of your own; may stand last."
)
def render(*, as_diff: bool, **parameters: Any) -> None:
    """Print the batch script of a job; nothing is written or submitted.

    The output is exactly what `submit` gives to sbatch, so `slurmddp render ... | sbatch` works.
    With --set it is the script of a sweep. To add lines to the script, there is --setup, and to change it, --template;
    --help-all shows both.
    """
    from slurmddp.script.build import build_script, diff

    words = parameters["words"]
    if words[1:] and words[-1] == "--diff" and job_files.read_batch_script(words[0]):
        as_diff = True  # behind a script, too: it is no argument that a person wants to review
        parameters["words"] = words[:-1]
    request = name_run(build_request(parameters))
    script = build_script(request.resolved.spec, request.array)
    own = request.resolved.spec.script
    if as_diff and own is None:
        raise UsageError("--diff compares with a batch script of your own; name one, or leave --diff out")
    if own and (given := shlex.join(request.resolved.spec.command[1:])):
        print_message(f"words behind a script are not in its text; sbatch wants them again, as in: sbatch FILE {given}")
    print_message(*script.notices)
    write_bytes(sys.stdout, b"".join(diff(own, script.text)) if as_diff and own else script.text)
