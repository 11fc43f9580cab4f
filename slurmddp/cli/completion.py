"""What a shell offers for the names of runs and jobs; the rest of its completion is click's."""

import glob
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from slurmddp.cli.job_command import default_runs_dir
from slurmddp.cli.run_arguments import TEXT
from slurmddp.config.job_spec import NAME
from slurmddp.errors import SlurmddpError
from slurmddp.runs import lookup


def complete_target(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs, and for digits also the jobs, whose names begin with a word; nothing after an error."""
    del parameter
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
