"""What the commands share that name runs: `--runs-dir`, the run that a word names, and what a shell offers for it."""

import glob
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from slurmddp.config.configuration_files import RUNS_DIR, find_files
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs import lookup
from slurmddp.runs.layout import RunDir
from slurmddp.runs.registry import GivenFolder, hint_elsewhere
from slurmddp.runs.submissions import last_time
from slurmddp.text import quote_value

_VARIABLE: Final = "SLURMDDP_RUNS_DIR"
_SECONDS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0}


class _Text(click.ParamType[str]):
    """A text that is not empty: an empty one comes from a variable of the shell that is not set."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> str:
        if value == "":
            name = param.opts[-1] if isinstance(param, click.Option) else str(param and param.metavar).strip("[].")
            raise UsageError(f"{name}: an empty text is not allowed; leave it out")
        return str(value)


TEXT: Final = _Text()


def default_runs_dir() -> str:
    """Return the folder of runs that the environment or the configuration files name.

    Where the working directory has no runs there, it is that of the nearest parent folder that has.
    """
    named = RUNS_DIR
    if _VARIABLE in os.environ or any(find_files(Path.cwd(), lambda *file: file)):
        from slurmddp.cli.job_command import find_configuration
        from slurmddp.config.resolve import find_runs_dir

        named = find_runs_dir(find_configuration().files, os.environ)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if any((folder / named).glob("*/submissions.jsonl")) and (folder / named).stat().st_uid == os.getuid():
            return named if folder == here else str(folder / named)
    return named


def _check_runs_dir(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the folder; one that was given is the only one that is searched. Raises UsageError if it is not a folder.

    Without one, a folder that is not there yet has no runs.
    """
    is_given = context.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT
    if Path(value).is_dir() or not (is_given or os.environ.get(_VARIABLE) or os.path.lexists(value)):
        return GivenFolder(value) if is_given else value
    name = option.opts[-1] if is_given else _VARIABLE
    if not (is_given or os.environ.get(_VARIABLE)):
        from slurmddp.config.job_files import find_configuration

        files = find_configuration(Path.cwd()).files
        name = next((str(file.path) for file in files if "runs-dir" in file.table), name)
    raise UsageError(f"{name}: {quote_value(value)} is not a folder; give the one that has the runs")


runs_dir_option: Final = click.option(
    "--runs-dir",
    type=TEXT,
    default=default_runs_dir,
    callback=_check_runs_dir,
    metavar="DIR",
    help=f"Folder that contains the runs. [default: {RUNS_DIR}]",
)
"""For commands that read runs and describe no job."""


def complete_target(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs, and for digits also the jobs, whose names begin with a word; nothing after an error."""
    from slurmddp.config.job_spec import NAME

    with suppress(SlurmddpError, OSError):
        folder = Path.cwd() / (context.params.get("runs_dir") or default_runs_dir())
        targets = lookup.survey(str(folder)).submitted if incomplete.isdecimal() else ()
        jobs = [job for target in targets for job in target.jobs]
        named = folder.glob(f"{glob.escape(incomplete)}*/submissions.jsonl") if folder.is_dir() else ()
        names = sorted(path.parent.name for path in named if re.fullmatch(NAME, path.parent.name))
        return [CompletionItem(word) for word in [*(job for job in jobs if job.startswith(incomplete)), *names]]
    return []


targets_argument: Final = click.argument(
    "words", type=TEXT, metavar="[RUN|JOBID]...", nargs=-1, shell_complete=complete_target
)
"""Names runs and jobs."""


def parse_since(text: str | None, now: float) -> float:
    """Return the time that `--since` means, in seconds since 1970; without it a week ago. Raises UsageError."""
    text = "7d" if text is None else text
    if age := re.fullmatch(r"([0-9]+)([dhm])", text):
        return max(0.0, now - float(age[1]) * _SECONDS[age[2]])
    with suppress(ValueError, OverflowError):
        return max(0.0, datetime.fromisoformat(text).timestamp())
    known = "as in 7d, 12h, 30m, nor a day as in 2026-11-01"
    raise UsageError(f"--since: {quote_value(text)} is not a number of days, hours or minutes, {known}")


def find_target(word: str | None, runs_dir: str) -> lookup.Target:
    """Return what a word names: a run, a whole sweep, or a job, which may be of no run here.

    Without a word it is the run that was submitted last, or the last run on this machine when none was submitted.
    Raises UsageError when there is none.
    """
    if word is not None:
        return lookup.find([word], runs_dir, local=True)[0]
    known = [target for target in lookup.find([], runs_dir, local=True) if target.jobs]
    if not known:
        hint = hint_elsewhere() or "--runs-dir names another folder"
        raise UsageError(f"nothing was submitted in {runs_dir} yet; {hint}")
    return max(known, key=lambda target: (last_time(target.records), target.jobs[-1]))


def find_run(word: str | None, runs_dir: str, *, sweeps: bool = False) -> RunDir:
    """Return the one run that a word names; also one that `slurmddp` did not submit, if it has events.

    Raises UsageError as `find_target` does, for a sweep of several settings unless `sweeps`, and for a job of no run.
    """
    if word is not None:
        run = RunDir.named("." if "/" in word else runs_dir, word)
        if run.events.is_file() and not run.submissions.is_file():
            return run
    found = find_target(word, runs_dir)
    found = found if sweeps else lookup.require_one(found, word or "")
    if found.run is None:
        hint = f"--runs-dir names another folder; {name_task(found.name)}"
        raise UsageError(f"job {quote_value(found.name)} is of no run in {runs_dir}; {hint}")
    return found.run


def name_task(job_id: str) -> str:
    """Return how a task is named if a job is an array, as those of an executor's map_array are."""
    return f"of an array, name a task, as in {job_id.partition('_')[0]}_0"
