"""`slurmddp completion`: what a shell needs to complete slurmddp's words; and what completes runs and jobs."""

import glob
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from slurmddp.cli import COMPLETE_VARIABLE
from slurmddp.cli.job_options import runs_dir
from slurmddp.config.job_spec import NAME
from slurmddp.errors import SlurmddpError
from slurmddp.runs import lookup
from slurmddp.runs.submissions import submissions

SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print what makes a shell complete commands, options, runs, job ids and files.

    \b
    bash, in ~/.bashrc:                   eval "$(slurmddp completion bash)"
    zsh, in ~/.zshrc after compinit:      eval "$(slurmddp completion zsh)"
    fish, in ~/.config/fish/config.fish:  slurmddp completion fish | source
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise SlurmddpError(f"click completes no {shell}")
    click.echo(kind(context.find_root().command, {}, "slurmddp", COMPLETE_VARIABLE).source())


def complete_target(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs, and for a digit the jobs, that a word can become; nothing where something is wrong."""
    del parameter
    with suppress(SlurmddpError, OSError):
        return [CompletionItem(word) for word in _words(_runs_dir(context), incomplete)]
    return []


def _runs_dir(context: click.Context) -> str:
    given: str | None = context.params.get("runs_dir")
    return given or runs_dir()


def _words(runs_dir: str, incomplete: str) -> Iterator[str]:
    if incomplete.isdecimal():
        for run in lookup.runs(runs_dir):
            yield from (job for record in submissions(run) if (job := record["job"]).startswith(incomplete))
    folder = Path.cwd() / runs_dir
    named = folder.glob(f"{glob.escape(incomplete)}*/submissions.jsonl") if folder.is_dir() else ()
    yield from sorted(name for path in named if re.fullmatch(NAME, name := path.parent.name))


def targets_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the words that name runs and jobs."""
    decorate = click.argument("words", metavar="[RUN|JOBID]", nargs=-1, shell_complete=complete_target)
    return decorate(function)
