"""Options of the commands that change several jobs: `--all`, and the confirmation it asks for."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from slurmddp.cli.job_command import print_message
from slurmddp.errors import UsageError
from slurmddp.text import count, escape_text

_MOST_LISTED: Final = 10

yes_option: Final = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def all_option(text: str) -> Callable[[Any], Any]:
    """Return the option `--all`, with a help text that says which jobs it selects."""
    return click.option("--all", "every", is_flag=True, help=text)


def check_targets(words: Sequence[str], *, every: bool) -> None:
    """Raise UsageError unless either jobs are named or `--all` is given."""
    if every and words:
        raise UsageError(f"--all cannot be combined with names ({' '.join(map(escape_text, words))}); give one of them")
    if not (every or words):
        raise UsageError("name the runs or jobs, or give --all; `slurmddp status` lists them")


def confirm(verb: str, jobs: Sequence[str], *, yes: bool) -> None:
    """Ask for confirmation; raise Abort if it is refused, UsageError if there is no terminal to ask on."""
    if yes or not jobs:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"--all selects {count(len(jobs), 'job')}, and there is no terminal to ask; add --yes")
    for job in jobs[:_MOST_LISTED]:
        print_message(f"  {escape_text(job)}")
    if len(jobs) > _MOST_LISTED:
        print_message(f"  and {len(jobs) - _MOST_LISTED} more")
    click.confirm(f"{verb} {count(len(jobs), 'job')}?", abort=True, err=True)
