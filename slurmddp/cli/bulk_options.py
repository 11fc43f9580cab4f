"""What the commands share that act on jobs: several words, or `--all` with a question first."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from slurmddp.cli.job_options import tell
from slurmddp.errors import UsageError
from slurmddp.text import printable

_SHOWN: Final = 10

yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
"""For scripts."""


def all_option(text: str) -> Callable[[Any], Any]:
    """Return the option that means all jobs."""
    return click.option("--all", "every", is_flag=True, help=text)


def check_words(words: Sequence[str], *, every: bool) -> None:
    """Raise UsageError unless jobs are named, or all are meant."""
    if every and words:
        raise UsageError(f"--all means every job, and {' '.join(map(printable, words))} some; give one of them")
    if not (every or words):
        raise UsageError("name runs or jobs, or say --all; `slurmddp status` lists them")


def confirm(verb: str, jobs: Sequence[str], *, yes: bool) -> None:
    """Ask a person whether it is to be; raise UsageError where there is nobody to ask, Abort when it is not."""
    if yes or not jobs:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"--all means {_count(jobs)} here, and there is no terminal to ask; say --yes to mean it")
    for job in jobs[:_SHOWN]:
        tell(f"  {printable(job)}")
    if len(jobs) > _SHOWN:
        tell(f"  and {len(jobs) - _SHOWN} more")
    click.confirm(f"{verb} {_count(jobs)}?", abort=True, err=True)


def _count(jobs: Sequence[str]) -> str:
    return f"{len(jobs)} job{'s' * (len(jobs) != 1)}"
