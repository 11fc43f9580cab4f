"""`slurmddp tensorboard`: TensorBoard on the login node, for whoever knows its address."""

import contextlib
import getpass
import secrets
import socket
import threading
import warnings
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from slurmddp.cli.job_options import runs_dir_option, tell
from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.text import shown

HOST: Final = "127.0.0.1"
HINT: Final = "`slurmddp tensorboard` needs the package tensorboard; type: pip install 'slurmddp[tensorboard]'"


@click.command()
@click.argument("target", metavar="[RUN]", required=False)
@runs_dir_option
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port to listen on. [default: a free one]")
def tensorboard(target: str | None, *, runs_dir: str, port: int | None) -> None:
    """Show what a run has written for TensorBoard; without RUN, all runs. Ctrl-C ends it.

    stdout is the address. It has a secret in it that stands on no command line: others on this machine cannot guess
    it. From your own machine it is reached through the ssh line that is printed, too.
    """
    folder = _folder(target, runs_dir)
    url = _serve(folder, port)
    at = urlsplit(url).port
    click.echo(url)
    tell(f"TensorBoard of {folder}; Ctrl-C ends it. From your own machine, first:")
    tell(f"  ssh -L {at}:{HOST}:{at} {getpass.getuser()}@{socket.gethostname()}")
    threading.Event().wait()


def _folder(target: str | None, runs_dir: str) -> Path:
    if target is None:
        if not Path(runs_dir).is_dir():
            raise UsageError(f"there are no runs in {shown(runs_dir)}; give a RUN, or --runs-dir")
        return Path(runs_dir).absolute()
    for folder in (Path(target), Path(runs_dir, target)):
        if folder.is_dir():
            return _events(RunDir(folder.absolute()), target)
    raise UsageError(f"{shown(target)} is no folder, and no run in {runs_dir}; give one of them, or --runs-dir")


def _events(run: RunDir, target: str) -> Path:
    if not run.tensorboard.is_dir():
        raise UsageError(
            f"run {shown(target)} has written nothing for TensorBoard; switch the bundled worker's tensorboard on"
        )
    return run.tensorboard


def _serve(folder: Path, port: int | None) -> str:
    """Start TensorBoard in a thread of this process and return its address.

    The data server that it would start has neither the secret nor its own; without it all is in this process.
    """
    program, prefix = _program(), secrets.token_urlsafe(16)
    with contextlib.redirect_stderr(None), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        board = program.TensorBoard()
        board.configure(logdir=str(folder), host=HOST, port=port or 0, path_prefix=f"/{prefix}", load_fast="false")
        try:
            url: str = board.launch()
        except program.TensorBoardServerException as error:
            raise SlurmddpError(f"TensorBoard cannot be started: {error.msg}") from error
    return url


def _program() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tensorboard import program  # type: ignore[import-untyped]  # it tells no types
    except ImportError as error:
        raise SlurmddpError(HINT) from error
    return program
