"""`slurmddp --host`: a command on another machine; and `setup` and `pull`, which prepare it and fetch from it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from slurmddp.cli import find_host
from slurmddp.cli.screen import confirm, print_message
from slurmddp.errors import UsageError
from slurmddp.remote.connection import Host
from slurmddp.remote.travel import MOST_BYTES, find_run, pull_run, send_code
from slurmddp.runs.layout import RunDir
from slurmddp.version import __version__

_WITH_CODE: Final = ("submit", "render", "sweep", "scale", "doctor", "run", "config")
"""The commands that read the files of the project: they are sent first."""


def forward(machine: tuple[str, str, list[str]], words: Sequence[str]) -> int:
    """Run a command line on the other machine, after sending the code if it needs that; return its exit status."""
    host, command = Host.connect(*machine), words[0] if words else ""
    if command in _WITH_CODE:
        send_code(host, _announce)
    status, page = host.slurmddp(words, capture=command == "report" and "--json" not in words)
    if page:
        import webbrowser

        run = RunDir.named("jobs", ".") if "--all" in words else find_run(page, "jobs")
        run.create()
        host.rsync(str(Path(page).parent), f"HOST:{run.report.name}", str(run.report))
        click.echo(run.report)
        if sys.stdout.isatty():
            webbrowser.open(run.report.as_uri())
    return status


@click.command()
@click.option("--yes", is_flag=True, help="Install what is missing.")
def setup(*, yes: bool) -> None:
    """Look if jobs can be submitted on --host, and put this version of slurmddp there.

    It is one folder, .slurmddp in --remote-dir. The Python of the training needs nothing.
    """
    from slurmddp.remote.setup import install, look

    host = _connect()
    found = look(host)
    if yes and not found["slurmddp"]:
        install(host, found["python"])
        found = look(host)
    for program, place in found.items():
        click.echo(f"{program:<9} {place or 'missing'}")
    if not found["slurmddp"]:
        print_message(f"to install slurmddp {__version__} there, as here, type: slurmddp {host.typed}setup --yes")


@click.command()
@click.argument("word", metavar="RUN")
@click.option("--runs-dir", metavar="DIR", help="Folder for runs here. [default: jobs]")
def pull(word: str, *, runs_dir: str | None) -> int:
    """Fetch a run from --host: its model, its logs and its report; stdout is its folder here.

    The folder is there whole or not at all. After a lost connection, the same line continues.
    """
    from slurmddp.cli.run_arguments import default_runs_dir

    host = _connect()
    status, page = host.slurmddp(["report", word], capture=True)
    if page:
        click.echo(pull_run(host, page, default_runs_dir() if runs_dir is None else runs_dir))
    return status


def _connect() -> Host:
    """Connect to the machine that the command line or the configuration names. Raises UsageError without one."""
    if found := find_host(click.get_current_context().find_root(), [""]):
        return Host.connect(*found)
    raise UsageError("no machine is named; type: slurmddp --host HOST COMMAND, or set host in slurmddp.toml")


def _announce(what: str, size: int) -> None:
    """Print what is to be sent; if it is large, ask first, unless that was agreed to."""
    if size > MOST_BYTES and not click.get_current_context().find_root().params["yes"]:
        confirm(f"{what}?", f"this would {what}; add --yes before the command, or list files in .gitignore")
    print_message(what)
