"""What the commands share that name runs: the check of a text, `--runs-dir`, `--all` and its confirmation."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from slurmddp.cli.job_command import default_runs_dir, print_message
from slurmddp.config import job_files
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.errors import UsageError
from slurmddp.runs.registry import GivenFolder
from slurmddp.text import count, escape_text, quote_value

_KEY: Final = "runs-dir"
_VARIABLE: Final = "SLURMDDP_RUNS_DIR"
_MOST_LISTED: Final = 10


class _Text(click.ParamType[str]):
    """A text that is not empty: an empty one comes from a variable of the shell that is not set."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del ctx
        if value == "":
            name = param.opts[-1] if isinstance(param, click.Option) else str(param and param.metavar).strip("[].")
            raise UsageError(f"{name}: an empty text is not allowed; leave it out")
        return str(value)


TEXT: Final = _Text()


def _check_runs_dir(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the folder; one that was given is the only one that is searched. Raises UsageError if it is not a folder.

    Without one, a folder that is not there yet has no runs.
    """
    is_given = context.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT
    if Path(value).is_dir() or not (is_given or os.environ.get(_VARIABLE) or os.path.lexists(value)):
        return GivenFolder(value) if is_given else value
    name = option.opts[-1] if is_given else _find_origin()
    raise UsageError(f"{name}: {quote_value(value)} is not a folder; give the one that has the runs")


def _find_origin() -> str:
    """Return which variable or file names the folder of runs."""
    files = job_files.find_configuration(Path.cwd()).files
    file = next((str(file.path) for file in files if _KEY in file.table), "--runs-dir")
    return _VARIABLE if os.environ.get(_VARIABLE) else file


runs_dir_option: Final = click.option(
    "--runs-dir",
    type=TEXT,
    default=default_runs_dir,
    callback=_check_runs_dir,
    metavar="DIR",
    help=f"Folder that contains the runs. [default: {JOB_FIELDS[_KEY].default}]",
)
"""For commands that read runs and describe no job."""

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
