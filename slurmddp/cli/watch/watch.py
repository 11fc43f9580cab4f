"""`slurmddp watch`: show jobs, their progress and output live on the whole screen."""

import os
import signal
import sys
import threading
from io import TextIOWrapper
from typing import Final

import click

from slurmddp.cli.run_arguments import complete_target, runs_dir_option
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs import lookup

HINT: Final = "`slurmddp watch` needs the packages textual and textual-plotext; type: pip install 'slurmddp[watch]'"


@click.command()
@click.argument("targets", metavar="[RUN|ID]...", nargs=-1, shell_complete=complete_target)
@runs_dir_option
def watch(targets: tuple[str, ...], *, runs_dir: str) -> int:
    """Show jobs live: state, progress, curves of loss and throughput, events, output.

    The default is the last job of each run. Keys choose a job and show its output; ? shows the keys, q quits. Slurm is
    asked every 10 seconds, files are read every second.
    """
    lookup.find(targets, runs_dir)
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual writes to the last
    is_screen = all(stream is not None and stream.isatty() for stream in streams)
    if not is_screen or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("`slurmddp watch` needs a terminal; without one, type: slurmddp status")
    try:
        from slurmddp.cli.watch.app import WatchApp
    except ImportError as error:
        raise SlurmddpError(HINT) from error
    for name in ("COLUMNS", "LINES"):  # they do not follow the size of the window
        os.environ.pop(name, None)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")  # for a terminal without UTF-8
    threading.excepthook = _exit_without_terminal
    app = WatchApp(targets, runs_dir, os.environ)
    app.run()
    return app.return_code or 0


def _exit_without_terminal(failure: threading.ExceptHookArgs) -> None:
    """End the process when Textual's thread cannot write: the terminal is gone, and Textual would wait forever."""
    if issubclass(failure.exc_type, OSError):
        os._exit(128 + signal.SIGHUP)
    threading.__excepthook__(failure)
