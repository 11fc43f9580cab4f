"""`slurmddp --host`: a command on another machine; and `setup` and `pull`, which prepare it and fetch from it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_command import confirm, print_message
from slurmddp.cli.run_arguments import TEXT, runs_dir_option
from slurmddp.config.job_files import find_remote, read_batch_script
from slurmddp.errors import UsageError
from slurmddp.remote import setup as preparing
from slurmddp.remote.connection import Host
from slurmddp.remote.travel import pull_run, send_code
from slurmddp.runs.layout import RunDir
from slurmddp.script.git import find_work_tree
from slurmddp.version import __version__

_WITH_CODE: Final = ("submit", "render", "sweep", "scale", "doctor")
"""The commands that read the files of the project: they are sent first."""


def forward(words: Sequence[str]) -> int:
    """Run a command line on the other machine, after sending the code if it needs that; return its exit status."""
    host, command = _connect(words), words[0] if words else ""
    if command in _WITH_CODE:
        sure = click.get_current_context().find_root().params["yes"]
        send_code(host, _find_top(), print_message if sure else _ask, print_message)
    is_own = any(map(read_batch_script, words))  # which stays as it is
    if command in _WITH_CODE[:4] and words[1:2] != ["results"] and not ({"--snapshot", "manual"} & {*words} or is_own):
        words = [command, "--snapshot", *words[1:]]  # what is sent later must not change a job that waits
    status, page = _run(host, words, capture=command == "report" and "--json" not in words)
    if page:
        run = RunDir.named("jobs", Path(page).parent.name)
        run.create()
        host.rsync(str(Path(page).parent), f"HOST:{run.report.name}", str(run.report))
        click.echo(run.report)
        if sys.stdout.isatty():
            click.launch(str(run.report))
    return status


@click.command()
@click.option("--yes", is_flag=True, help="Install what is missing.")
def setup(*, yes: bool) -> None:
    """Look if jobs can be submitted on --host, and put this version of slurmddp there.

    It is one folder, .slurmddp in --remote-dir. The Python of the training needs nothing.
    """
    host = _connect(())
    found = preparing.look(host)
    if yes and found["slurmddp"] != __version__:
        preparing.install(host, found["python"])
        found = preparing.look(host)
    for program, what in found.items():
        click.echo(f"{program:<9} {what or 'missing'}")
    if found["slurmddp"] != __version__:
        print_message(f"here is {__version__}; to put it there, type: slurmddp --host {host.name} setup --yes")


@click.command()
@click.argument("word", type=TEXT, metavar="RUN")
@runs_dir_option
def pull(word: str, *, runs_dir: str) -> int:
    """Fetch a run from --host: its model, its logs and its report; stdout is its folder here.

    The folder is there whole or not at all. After a lost connection, the same line continues.
    """
    host = _connect(())
    status, page = _run(host, ["report", word], capture=True)
    if page:
        click.echo(pull_run(host, Path(page).parent, runs_dir))
    return status


def _connect(words: Sequence[str]) -> Host:
    """Connect to the machine that the command line or the configuration names. Raises UsageError without one."""
    typed = click.get_current_context().find_root().params
    configured = find_remote(Path.cwd(), words, os.environ)
    name = typed["host"] or configured.get("host")
    if not name:
        raise UsageError("no machine is named; type: slurmddp --host HOST COMMAND, or set host in slurmddp.toml")
    return Host.connect(name, typed["remote_dir"] or configured.get("remote-dir", "slurmddp"))


def _run(host: Host, words: Sequence[str], *, capture: bool) -> tuple[int, str]:
    """Run slurmddp there, in the folder that stands for the working directory."""
    top = _find_top()
    return host.slurmddp(str(top.name / Path.cwd().resolve().relative_to(top)), words, capture=capture)


def _find_top() -> Path:
    return (find_work_tree(Path.cwd()) or Path.cwd()).resolve()


def _ask(question: str) -> None:
    confirm(f"{question}?", f"this would {question}; add --yes before the command, or list files in .gitignore")
