"""`--after` and `--after-ok`: a job behind others, named as people name them."""

import os
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from slurmddp.config.resolve import Resolved
from slurmddp.errors import UsageError
from slurmddp.text import shown


def after_options(function: Any) -> Any:
    """Add what a job is to wait for."""
    for name, help_text in (
        ("--after-ok", "Start when that job has succeeded. Repeatable."),
        ("--after", "Start when that job, or the newest of that run, has ended, however it did. Repeatable."),
    ):
        function = click.option(name, multiple=True, metavar="JOBID|RUN", help=help_text)(function)
    return function


def behind(resolved: Resolved, after: Sequence[str], after_ok: Sequence[str]) -> Resolved:
    """Return the job with what `--after` and `--after-ok` add to its `--dependency`, wherever that comes from.

    Raises UsageError for a run that is none, and for a `--dependency` of alternatives (sbatch(1)).
    """
    if not (after or after_ok):
        return resolved
    given, runs_dir = resolved.spec.dependency, resolved.spec.runs_dir
    if given and "?" in given:
        raise UsageError(f"--dependency {shown(given)}: `?` is or, and --after is and; write all of it in --dependency")
    asked = [f"afterany:{job}" for word in after for job in _jobs(word, runs_dir)]
    asked += [f"afterok:{job}" for word in after_ok for job in _jobs(word, runs_dir)]
    spec = msgspec.structs.replace(resolved.spec, dependency=",".join([*([given] if given else []), *asked]))
    origin = "; ".join(filter(None, (given and resolved.origins["dependency"], "command line")))
    return resolved._replace(spec=spec, origins={**resolved.origins, "dependency": origin})


def _jobs(word: str, runs_dir: str) -> list[str]:
    """Return a job as it is given, or the newest of a run; of a sweep also its other arrays that have not ended."""
    from slurmddp.runs import lookup
    from slurmddp.submission.sweep import arrays

    found = lookup.find([word], runs_dir)[0]
    waiting = arrays(found.run, os.environ) if found.run and len(found.jobs) > 1 else set()
    return [job for job in found.jobs[:-1] if job in waiting] + [found.jobs[-1]]
