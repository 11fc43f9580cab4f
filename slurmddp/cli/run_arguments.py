"""What the commands share that name runs: the check of a text, and `--runs-dir`."""

import os
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from slurmddp.cli.job_command import default_runs_dir
from slurmddp.config import job_files
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.errors import UsageError
from slurmddp.runs.registry import GivenFolder
from slurmddp.text import quote_value

_KEY: Final = "runs-dir"
_VARIABLE: Final = "SLURMDDP_RUNS_DIR"


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
    name = option.opts[-1] if is_given else _VARIABLE
    if not (is_given or os.environ.get(_VARIABLE)):
        files = job_files.find_configuration(Path.cwd()).files
        name = next((str(file.path) for file in files if _KEY in file.table), name)
    raise UsageError(f"{name}: {quote_value(value)} is not a folder; give the one that has the runs")


runs_dir_option: Final = click.option(
    "--runs-dir",
    type=TEXT,
    default=default_runs_dir,
    callback=_check_runs_dir,
    metavar="DIR",
    help=f"Folder that contains the runs. [default: {JOB_FIELDS[_KEY].default}]",
)
"""For commands that read runs and describe no job."""
