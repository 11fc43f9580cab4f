"""`slurmddp completion`: print the completion script of a shell; complete the names of runs and jobs."""

import glob
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from slurmddp.cli import COMPLETE_VARIABLE
from slurmddp.cli.job_command import default_runs_dir
from slurmddp.cli.run_arguments import TEXT
from slurmddp.config.job_spec import NAME
from slurmddp.errors import SlurmddpError
from slurmddp.runs import lookup
from slurmddp.runs.submissions import submissions

SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that makes a shell complete commands, options, runs, job ids and files.

    \b
    bash, in ~/.bashrc:                   eval "$(slurmddp completion bash)"
    zsh, in ~/.zshrc after compinit:      eval "$(slurmddp completion zsh)"
    fish, in ~/.config/fish/config.fish:  slurmddp completion fish | source
    """  # noqa: D301 click marks lines that stay as they are by this character
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise SlurmddpError(f"click has no completion for {shell}")
    click.echo(completion_class(context.find_root().command, {}, "slurmddp", COMPLETE_VARIABLE).source())


def complete_target(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs, and for digits also the jobs, whose names begin with a word; nothing after an error."""
    del parameter
    with suppress(SlurmddpError, OSError):
        runs_dir = context.params.get("runs_dir") or default_runs_dir()
        return [CompletionItem(word) for word in _find_names(runs_dir, incomplete)]
    return []


def _find_names(runs_dir: str, incomplete: str) -> Iterator[str]:
    if incomplete.isdecimal():
        for run in lookup.runs(runs_dir):
            yield from (job for record in submissions(run) if (job := record["job"]).startswith(incomplete))
    folder = Path.cwd() / runs_dir
    named = folder.glob(f"{glob.escape(incomplete)}*/submissions.jsonl") if folder.is_dir() else ()
    yield from sorted(name for path in named if re.fullmatch(NAME, name := path.parent.name))


def targets_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument that names runs and jobs."""
    return click.argument("words", type=TEXT, metavar="[RUN|JOBID]...", nargs=-1, shell_complete=complete_target)(
        function
    )
