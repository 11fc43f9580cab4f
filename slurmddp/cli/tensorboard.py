"""`slurmddp tensorboard`: serve TensorBoard on this machine, at an address that others cannot guess."""

import contextlib
import getpass
import secrets
import socket
import threading
import warnings
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from slurmddp.cli.run_arguments import TEXT, find_run, runs_dir_option
from slurmddp.cli.screen import print_message
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.text import quote_value

HOST: Final = "127.0.0.1"
HINT: Final = "`slurmddp tensorboard` needs the package tensorboard; type: pip install 'slurmddp[tensorboard]'"


@click.command()
@click.argument("target", type=TEXT, metavar="[RUN]", required=False)
@runs_dir_option
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port to listen on. [default: a free one]")
def tensorboard(target: str | None, *, runs_dir: str, port: int | None) -> None:
    """Show a run in TensorBoard; without RUN, all runs. Ctrl-C ends it.

    stdout is the address. It contains a secret, so that other users of this machine cannot open it. To open it from
    your own machine, use the ssh command that is printed, too.
    """
    run = find_run(target, runs_dir) if target else None
    folder = run.tensorboard if run else Path(runs_dir).absolute()
    if not folder.is_dir():
        own = f"run {quote_value(target)} has no data for TensorBoard; give the bundled worker --tensorboard"
        raise UsageError(own if run else f"there are no runs in {quote_value(runs_dir)}; give a RUN, or --runs-dir")
    url = _start_server(folder, port)
    at = urlsplit(url).port
    click.echo(url)
    print_message(f"TensorBoard of {folder}; Ctrl-C ends it. From your own machine, first:")
    print_message(f"  ssh -L {at}:{HOST}:{at} {getpass.getuser()}@{socket.gethostname()}")
    threading.Event().wait()


def _start_server(folder: Path, port: int | None) -> str:
    """Start TensorBoard in a thread of this process and return its address.

    Its separate data server, which would be reachable without the secret, is not started.
    """
    prefix = secrets.token_urlsafe(16)
    with contextlib.redirect_stderr(None), warnings.catch_warnings(action="ignore"):
        try:
            from tensorboard import program  # type: ignore[import-untyped]  # it tells no types
        except ImportError as error:
            raise SlurmddpError(HINT) from error
        board = program.TensorBoard()
        board.configure(logdir=str(folder), host=HOST, port=port or 0, path_prefix=f"/{prefix}", load_fast="false")
        try:
            url: str = board.launch()
        except program.TensorBoardServerException as error:
            raise SlurmddpError(f"TensorBoard cannot be started: {error.msg}") from error
    return url
