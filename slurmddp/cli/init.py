"""`slurmddp init`: a job file to begin with."""

import os
import shlex
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_options import tell
from slurmddp.cluster import Cluster, job_template
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.text import shown

_TIMEOUT_S: Final = 20.0


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
def init(file: str | None) -> None:
    """Write a job file to begin with; stdout is its name alone.

    FILE is job.toml, or a name or folder of your own. It is for this cluster (partition, GPUs, time limit, account) and
    for the training script beside it: train.py, main.py, or the only one with a main; else for the bundled worker.
    Nothing is asked, and nothing overwritten.
    """
    path = _path(file)
    script = job_template.script_in(path.parent)
    typed = shlex.quote(str(path))
    text = job_template.starter(_cluster(), script=script, name=job_template.name_for(path, script), file=typed)
    _write(path, text)
    click.echo(str(path))
    tell(f"read it, then: slurmddp render {typed}, slurmddp submit {typed}")


def _path(file: str | None) -> Path:
    path = Path(file or job_template.DEFAULT)
    if path.is_dir():
        path /= job_template.DEFAULT
    if path.suffix != ".toml":
        path = path.with_name(f"{path.name}.toml")
    if os.path.lexists(path):
        raise UsageError(f"{shown(str(path))} is there already and stays as it is; name another: slurmddp init NAME")
    if not str(path).isprintable():
        raise UsageError(f"{shown(str(path))} holds a character that cannot be printed; choose another name")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {shown(str(path.parent))}; make it first")
    return path


def _cluster() -> Cluster | None:
    from slurmddp.cluster.inspect import look

    try:
        return look(os.environ, timeout_s=_TIMEOUT_S, accounts=True)
    except ClusterError as error:
        tell(f"written without a cluster: {error}")
        return None


def _write(path: Path, text: str) -> None:
    """Write the file whole, or not at all."""
    try:
        file = path.open("xb")
    except FileExistsError as error:
        raise UsageError(f"{shown(str(path))} is there by now and stays as it is; name another") from error
    try:
        with file:
            file.write(text.encode())
    except OSError as error:
        path.unlink()
        raise SlurmddpError(f"{shown(str(path))} cannot be written: {error.strerror}") from error
