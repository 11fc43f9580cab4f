"""`--after` and `--after-ok`: a job behind others, named as people name them."""

import os
from collections.abc import Sequence
from typing import Any

import click

from slurmddp import config, target
from slurmddp.cli.options import configuration
from slurmddp.errors import UsageError
from slurmddp.sweep.submission import arrays


def after_options(function: Any) -> Any:
    """Add what a job is to wait for."""
    for name, help_text in (
        ("--after-ok", "Start when that job has succeeded. Repeatable."),
        ("--after", "Start when that job, or the newest of that run, has ended, however it did. Repeatable."),
    ):
        function = click.option(name, multiple=True, metavar="JOBID|RUN", help=help_text)(function)
    return function


def behind(parameters: dict[str, Any], after: Sequence[str], after_ok: Sequence[str]) -> dict[str, Any]:
    """Return the parameters with what `--after` and `--after-ok` add to `--dependency`.

    Raises UsageError for a run that is none, and for a `--dependency` of alternatives (sbatch(1)).
    """
    given = parameters.get("dependency")
    if given and "?" in given and (after or after_ok):
        raise UsageError(f"--dependency {given}: `?` is or, and --after is and; write all of it in --dependency")
    runs_dir = parameters.get("runs_dir") or config.runs_dir(configuration().files, os.environ)
    asked = [f"afterany:{job}" for word in after for job in _jobs(word, runs_dir)]
    asked += [f"afterok:{job}" for word in after_ok for job in _jobs(word, runs_dir)]
    return parameters | {"dependency": ",".join([*([given] if given else []), *asked])} if asked else parameters


def _jobs(word: str, runs_dir: str) -> list[str]:
    """Return a job as it is given, or the newest of a run; of a sweep also its other arrays that have not ended."""
    found = target.find([word], runs_dir)[0]
    waiting = arrays(found.run, os.environ) if found.run and len(found.jobs) > 1 else set()
    return [job for job in found.jobs[:-1] if job in waiting] + [found.jobs[-1]]
