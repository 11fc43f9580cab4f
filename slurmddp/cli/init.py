"""`slurmddp init`: write a first job file, and with `--example` the script for it."""

import os
import shlex
from pathlib import Path
from typing import Final, NamedTuple

import click

from slurmddp.cli.job_command import print_message
from slurmddp.cli.run_arguments import TEXT
from slurmddp.cluster import Cluster, job_template
from slurmddp.config.examples import example_names, read_example
from slurmddp.config.job_files import OTHER_FORMATS
from slurmddp.config.option_types import unknown
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.text import quote_value

_TIMEOUT_S: Final = 20.0


class _Files(NamedTuple):
    """What is written."""

    job: Path
    script: str | None
    """The name of the training script, beside the job file; None for the bundled worker."""
    example: str | None = None
    """The example whose text the script gets; None for a script that is there."""

    @property
    def new(self) -> tuple[Path, ...]:
        """The files that are created, in their order."""
        script = (self.job.with_name(self.script),) if self.example and self.script else ()
        return (*script, self.job)

    @property
    def hint(self) -> str:
        """What to do when one of them exists already."""
        if self.example:
            return f"give another name: slurmddp init --example {self.example} NAME"
        if self.script == self.job.with_suffix(".py").name:
            return "edit it, or remove it first"
        return "give another name: slurmddp init NAME"


@click.command()
@click.argument("file", type=TEXT, required=False, metavar="[FILE]")
@click.option(
    "--example",
    metavar="NAME",
    is_flag=False,
    flag_value="",
    help=f"Write this example and the job file that names it; one of {', '.join(example_names())}.",
)
def init(file: str | None, example: str | None) -> None:
    """Write a first job file; stdout is only its path.

    FILE is the job file, a folder for it, or a training script: `init train.py` writes train.toml. The default is
    job.toml. The job file is made for this cluster (partition, GPUs, time limit, account) and for the script. Where
    FILE is no script, that is train.py, main.py, or the only script with a main in the same folder; without one, the
    bundled worker trains. With --example, FILE names both files: `init --example steps exp` writes exp.py and exp.toml.
    Existing files are not overwritten.
    """
    files = _name_job_file(file) if example is None else _name_example(file, example)
    _check(files)
    typed = shlex.quote(str(files.job))
    name = job_template.choose_name(files.job, files.script)
    text = job_template.build_job_file(_inspect_cluster(), script=files.script, name=name, file=typed)
    _write(files, text)
    click.echo(str(files.job))
    edit = f"the script is {shlex.quote(str(files.new[0]))}; edit both files" if example else "edit the file"
    print_message(f"{edit} if needed; then type: slurmddp render {typed}, slurmddp submit {typed}")


def _name_example(file: str | None, example: str) -> _Files:
    """Return the files of an example: FILE's name, or the example's own, with `.toml` and `.py`."""
    if not example:
        raise UsageError(f"--example requires a name; there are {', '.join(example_names())}")
    if example not in example_names():
        raise unknown(example, example_names(), "--example", what="example")
    path = Path(file or example)
    if path.is_dir():
        path /= example
    path = _add_ending(path)
    return _Files(path.with_suffix(".toml"), path.with_suffix(".py").name, example)


def _name_job_file(file: str | None) -> _Files:
    path = Path(file or job_template.DEFAULT)
    if path.is_dir():
        path /= job_template.DEFAULT
    if path.suffix == ".py":
        return _Files(path.with_suffix(".toml"), path.name)
    path = _add_ending(path)
    return _Files(path, job_template.find_script(path.parent))


def _add_ending(path: Path) -> Path:
    if path.suffix in OTHER_FORMATS:
        raise UsageError(f"a job file ends in .toml; type: slurmddp init {shlex.quote(str(path.with_suffix('.toml')))}")
    return path if path.suffix in (".toml", ".py") else path.with_name(f"{path.name}.toml")


def _check(files: _Files) -> None:
    """Raise UsageError for names that cannot be, for a script that is not there, and for files that are."""
    folder, script = files.job.parent, files.script
    if not str(files.job).isprintable():
        raise UsageError(
            f"{quote_value(str(files.job))} contains a character that cannot be printed; give another name"
        )
    if not (Path.cwd() / folder).is_dir():
        raise UsageError(f"there is no folder {quote_value(str(folder))}; make it first")
    if script is not None and script.startswith("-"):
        raise UsageError(f"{quote_value(script)} begins with -, as an option does; give the script another name")
    if script and not files.example and not (folder / script).is_file():
        raise UsageError(
            f"there is no script {quote_value(str(folder / script))}; give one that exists, or the job file to write: "
            "slurmddp init NAME.toml, or write a script, too: slurmddp init --example steps"
        )
    for path in files.new:
        if os.path.lexists(path):
            raise _already_exists(path, files.hint)


def _inspect_cluster() -> Cluster | None:
    from slurmddp.cluster.inspect import query_cluster

    try:
        return query_cluster(os.environ, timeout_s=_TIMEOUT_S, accounts=True)
    except ClusterError as error:
        print_message(f"the job file has no values of a cluster: {error}")
        return None


def _write(files: _Files, text: str) -> None:
    """Create the job file, and the script of an example before it; leave none if not all can be written."""
    texts = [text]
    if files.example:  # its docstring shows how to start it
        texts.insert(0, read_example(files.example).replace(f"{files.example}.py", str(files.script)))
    created: list[Path] = []
    for path, content in zip(files.new, texts, strict=True):
        try:
            with path.open("xb") as file:
                created.append(path)
                file.write(content.encode())
        except OSError as error:
            for made in created:
                made.unlink()
            if isinstance(error, FileExistsError):  # created while the cluster was inspected
                raise _already_exists(path, files.hint) from error
            raise SlurmddpError(f"{quote_value(str(path))} cannot be written: {error.strerror}") from error


def _already_exists(path: Path, hint: str) -> UsageError:
    return UsageError(f"{quote_value(str(path))} exists already and is not changed; {hint}")
