"""`slurmddp watch`: show jobs, their progress and output live on the whole screen."""

import os
import signal
from typing import Final

import click

from slurmddp.cli.completion import complete_target
from slurmddp.cli.job_command import runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.runs import lookup

READ_S: Final = 1.0
"""Seconds between two reads of the files."""


@click.command()
@click.argument("targets", metavar="[RUN|ID]...", nargs=-1, shell_complete=complete_target)
@runs_dir_option
def watch(targets: tuple[str, ...], *, runs_dir: str) -> int:
    """Show jobs live: state, progress, curves of loss and throughput, events, output.

    The default is the last job of each run. Keys choose a job, show its output, cancel it, or requeue it; h lists the
    keys, q quits. Slurm is asked every 10 seconds, files are read every second.
    """
    from slurmddp.cli.watch.terminal import is_screen

    lookup.find(targets, runs_dir)
    if not is_screen():
        raise UsageError("`slurmddp watch` needs a terminal; without one, type: slurmddp status")
    number = _watch(targets, runs_dir)
    return 128 + number if number else 0


def _watch(targets: tuple[str, ...], runs_dir: str) -> int:
    """Show jobs until the user quits; return the signal that ended it, 0 for a key."""
    from slurmddp.cli.watch.frame import draw
    from slurmddp.cli.watch.keys import Session
    from slurmddp.cli.watch.poller import Poller
    from slurmddp.cli.watch.terminal import Terminal

    with Terminal() as terminal:
        poller = Poller(targets, runs_dir, os.environ, terminal.wake)
        session = Session(poller)
        poller.start()
        while not (session.over or terminal.signal):
            width, height = terminal.size
            terminal.show(draw(session.view(height), width, height))
            for key in terminal.keys(READ_S):
                session.press(key)
    return signal.Signals(terminal.signal).value if terminal.signal else 0
