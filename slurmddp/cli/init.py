"""`slurmddp init`: write a first job file."""

import os
import shlex
from pathlib import Path
from typing import Final

import click

from slurmddp.cli.job_command import print_message
from slurmddp.cluster import Cluster, job_template
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.text import quote_value

_TIMEOUT_S: Final = 20.0


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
def init(file: str | None) -> None:
    """Write a first job file; stdout is only its path.

    FILE is a file or a folder; the default is job.toml. The file is made for this cluster (partition, GPUs, time limit,
    account) and for the training script in the same folder: train.py, main.py, or the only script with a main; without
    one, for the bundled worker. Existing files are not overwritten.
    """
    path = _check_path(file)
    script = job_template.find_script(path.parent)
    typed = shlex.quote(str(path))
    text = job_template.build_job_file(
        _inspect_cluster(), script=script, name=job_template.choose_name(path, script), file=typed
    )
    _create(path, text)
    click.echo(str(path))
    print_message(f"edit the file if needed; next, type: slurmddp render {typed}, slurmddp submit {typed}")


def _check_path(file: str | None) -> Path:
    path = Path(file or job_template.DEFAULT)
    if path.is_dir():
        path /= job_template.DEFAULT
    if path.suffix != ".toml":
        path = path.with_name(f"{path.name}.toml")
    if os.path.lexists(path):
        raise _already_exists(path)
    if not str(path).isprintable():
        raise UsageError(f"{quote_value(str(path))} contains a character that cannot be printed; give another name")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {quote_value(str(path.parent))}; make it first")
    return path


def _inspect_cluster() -> Cluster | None:
    from slurmddp.cluster.inspect import query_cluster

    try:
        return query_cluster(os.environ, timeout_s=_TIMEOUT_S, accounts=True)
    except ClusterError as error:
        print_message(f"the job file has no values of a cluster: {error}")
        return None


def _create(path: Path, text: str) -> None:
    """Create the file; leave none if it cannot be written completely."""
    try:
        file = path.open("xb")
    except FileExistsError as error:  # created while the cluster was inspected
        raise _already_exists(path) from error
    except OSError as error:
        raise _cannot_be_written(path, error) from error
    try:
        with file:
            file.write(text.encode())
    except OSError as error:
        path.unlink()
        raise _cannot_be_written(path, error) from error


def _already_exists(path: Path) -> UsageError:
    return UsageError(
        f"{quote_value(str(path))} exists already and is not changed; give another name: slurmddp init NAME"
    )


def _cannot_be_written(path: Path, error: OSError) -> SlurmddpError:
    return SlurmddpError(f"{quote_value(str(path))} cannot be written: {error.strerror}")
