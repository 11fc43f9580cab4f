"""`slurmddp completion`: print the completion script of a shell; what it offers for names of runs and for values."""

import glob
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from slurmddp.cli import COMPLETE_VARIABLE
from slurmddp.cli.job_command import default_runs_dir
from slurmddp.cli.run_arguments import TEXT
from slurmddp.config import job_files
from slurmddp.config.job_spec import NAME
from slurmddp.config.option_types import Field
from slurmddp.errors import SlurmddpError
from slurmddp.runs import lookup
from slurmddp.slurm import client
from slurmddp.slurm import commands as slurm_commands
from slurmddp.slurm.environment import user

SHELLS: Final = ("bash", "zsh", "fish")
_LIMIT_S: Final = 2.0
"""A shell waits for the answer."""


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


def complete_value(field: Field, incomplete: str) -> list[str]:
    """Return the values of a job's option that begin with a text; none when Slurm does not answer soon."""
    found, key, nodes = field.choices, field.key, slurm_commands.list_nodes("--Node")
    commands = {
        "partition": slurm_commands.list_nodes(columns="%R"),
        "nodelist": nodes,
        "exclude": nodes,
        "account": slurm_commands.list_accounts("associations", f"user={user()}", columns="account"),
        "qos": slurm_commands.list_accounts("qos", columns="name"),
    }
    with suppress(SlurmddpError, OSError):
        if key == "profile":
            found = tuple(name for file in job_files.find_configuration(Path.cwd()).files for name in file.profiles)
        elif key in commands:
            found = tuple(client.query(commands[key], os.environ, timeout_s=_LIMIT_S).split())
    return sorted({word for word in found if word.startswith(incomplete) and re.fullmatch(r"[\w.:+-]+", word)})
