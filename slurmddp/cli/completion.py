"""`slurmddp completion`: print the completion script of a shell; what it offers for names of runs."""

import glob
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from slurmddp.cli import COMPLETE_VARIABLE
from slurmddp.cli.job_command import default_runs_dir
from slurmddp.cli.run_arguments import TEXT
from slurmddp.config.job_spec import NAME
from slurmddp.errors import SlurmddpError
from slurmddp.runs import lookup

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
