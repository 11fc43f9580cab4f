"""`slurmddp watch`: jobs, how they train and what they print, on the whole screen."""

import os
import signal
from typing import Final

import click

from slurmddp.cli.completion import complete_target
from slurmddp.cli.job_options import runs_dir_option
from slurmddp.errors import UsageError
from slurmddp.runs import lookup

LOOK_S: Final = 1.0
"""How often the files are looked at."""


@click.command()
@click.argument("targets", metavar="[RUN|ID]...", nargs=-1, shell_complete=complete_target)
@runs_dir_option
def watch(targets: tuple[str, ...], *, runs_dir: str) -> int:
    """Show jobs as they go: state, progress, curves of loss and throughput, events, output.

    Without a word, each run's last job. Keys choose a job, show its output, cancel it, put it back into the queue;
    h tells them all, q leaves. Slurm is asked every 10 seconds, files are read every second. GPUs are shown on a node
    of the job, where the package nvidia-ml-py is (the extra `gpu`).
    """
    from slurmddp.cli.watch.terminal import is_screen

    lookup.find(targets, runs_dir)
    if not is_screen():
        raise UsageError("`slurmddp watch` draws on a terminal, and this is none; type: slurmddp status")
    number = _watch(targets, runs_dir)
    return 128 + number if number else 0


def _watch(targets: tuple[str, ...], runs_dir: str) -> int:
    """Show and obey until somebody wants to leave; return the signal that said so, 0 for a key."""
    from slurmddp.cli.watch.frame import draw
    from slurmddp.cli.watch.keys import Session
    from slurmddp.cli.watch.poller import Asker
    from slurmddp.cli.watch.terminal import Terminal

    with Terminal() as terminal:
        asker = Asker(targets, runs_dir, os.environ, terminal.wake)
        session = Session(asker)
        asker.start()
        while not (session.over or terminal.signal):
            width, height = terminal.size
            terminal.show(draw(session.view(height), width, height, dots=terminal.has_dots))
            for key in terminal.keys(LOOK_S):
                session.press(key)
    return signal.Signals(terminal.signal).value if terminal.signal else 0
