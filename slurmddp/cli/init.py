"""`slurmddp init`: write a first job file, and with `--example` the script for it."""

import os
import shlex
from pathlib import Path
from typing import Any, Final

import click

from slurmddp.cli.job_command import build_option
from slurmddp.cli.run_arguments import TEXT
from slurmddp.cli.screen import print_message
from slurmddp.cluster import inspect
from slurmddp.cluster.limits import find_problems
from slurmddp.config.job_files import OTHER_FORMATS
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.option_types import convert, unknown
from slurmddp.errors import ClusterError, SlurmddpError, UsageError
from slurmddp.script import job_template
from slurmddp.text import quote_value

_TIMEOUT_S: Final = 20.0
_PACKAGE: Final = Path(__file__).parents[1]
_FOLDER: Final = next(filter(Path.is_dir, (_PACKAGE / "examples", _PACKAGE.parent / "examples")))
"""In the package when it is installed; next to the package in a checkout."""
EXAMPLES: Final = {path.stem: path for path in sorted(_FOLDER.glob("*.py"))}
"""The example scripts, by name."""


_KEYS: Final = ("nodes", "gpus-per-node", "ntasks-per-node", "partition", "account", "qos", "time")
_GIVEN: Final = tuple(JOB_FIELDS[key] for key in _KEYS)
"""The options of the job that a job file often begins with."""


@click.command(params=[build_option(field, field.name) for field in _GIVEN])
@click.argument("file", type=TEXT, required=False, metavar="[FILE]")
@click.option(
    "--example",
    metavar="NAME",
    is_flag=False,
    flag_value="",
    help=f"Write this example and the job file that names it; one of {', '.join(EXAMPLES)}.",
)
def init(file: str | None, example: str | None, **options: Any) -> None:
    """Write a first job file; stdout is only its path.

    FILE is the job file, a folder for it, or a training script: `init train.py` writes train.toml. The default is
    job.toml. The job file is made for this cluster (partition, GPUs, time limit, account) and for the script. Where
    FILE is no script, that is train.py or main.py in the same folder; without one, the bundled worker trains. With
    --example, FILE names both files: `init --example steps exp` writes exp.py and exp.toml. Options of the job, as in
    -p gpu, are written into the job file. Existing files are not overwritten.
    """
    values = ((field, options[field.name]) for field in _GIVEN)
    given = {field.name: convert(field, value, f"--{field.key}") for field, value in values if value is not None}
    wanted = JobSpec(job_name="x", **given)
    job, script = _name_files(file, example)
    new = [job.with_name(script), job] if example and script else [job]
    _check(job, script, must_exist=not example)
    for path in new:
        if os.path.lexists(path):
            raise _already_exists(path)
    typed = shlex.quote(str(job))
    name = job_template.choose_name(job, script)
    cluster = None
    try:
        cluster = inspect.query_cluster(os.environ, timeout_s=_TIMEOUT_S, accounts=True)
    except ClusterError as error:
        print_message(f"the job file has no values of a cluster: {error}")
    if cluster and (problems := find_problems(wanted, cluster)):
        raise ClusterError("; ".join(problems))
    texts = [job_template.build_job_file(cluster, script=script, name=name, file=typed, given=given)]
    if example:  # its docstring shows how to start it
        texts.insert(0, EXAMPLES[example].read_text("utf-8").replace(f"{example}.py", str(script)))
    _write(dict(zip(new, texts, strict=True)))
    click.echo(str(job))
    edit = f"the script is {shlex.quote(str(new[0]))}; edit both files" if example else "edit the file"
    print_message(f"{edit} if needed; then type: slurmddp render {typed}, slurmddp submit {typed}")


def _name_files(file: str | None, example: str | None) -> tuple[Path, str | None]:
    """Return the job file, and the name of the script beside it; None for the bundled worker."""
    if example == "":
        raise UsageError(f"--example requires a name; there are {', '.join(EXAMPLES)}")
    if example and example not in EXAMPLES:
        raise unknown(example, EXAMPLES, "--example", what="example")
    default = example or job_template.DEFAULT
    path = Path(file or default)
    if path.is_dir():
        path /= default
    if path.suffix in OTHER_FORMATS:
        raise UsageError(f"a job file ends in .toml; type: slurmddp init {shlex.quote(str(path.with_suffix('.toml')))}")
    if path.is_file() and path.suffix not in (".toml", ".py"):
        typed = shlex.quote(str(path))
        raise UsageError(
            f"{typed} is no training script in Python; a batch script needs no job file: slurmddp submit {typed}"
        )
    if path.suffix not in (".toml", ".py"):
        path = path.with_name(f"{path.name}.toml")
    if example or path.suffix == ".py":
        return path.with_suffix(".toml"), path.with_suffix(".py").name
    return path, job_template.find_script(path.parent)


def _check(job: Path, script: str | None, *, must_exist: bool) -> None:
    """Raise UsageError for names that cannot be, and for a script that must exist and does not."""
    folder = job.parent
    if not str(job).isprintable():
        raise UsageError(f"{quote_value(str(job))} contains a character that cannot be printed; give another name")
    if not (Path.cwd() / folder).is_dir():
        raise UsageError(f"there is no folder {quote_value(str(folder))}; make it first")
    if script is not None and script.startswith("-"):
        raise UsageError(f"{quote_value(script)} begins with -, as an option does; give the script another name")
    if script and must_exist and not (folder / script).is_file():
        raise UsageError(
            f"there is no script {quote_value(str(folder / script))}; give one that exists, or the job file to write: "
            "slurmddp init NAME.toml, or write a script, too: slurmddp init --example steps"
        )


def _write(texts: dict[Path, str]) -> None:
    """Create files with these texts; leave none if not all can be written."""
    created: list[Path] = []
    for path, content in texts.items():
        try:
            with path.open("xb") as file:
                created.append(path)
                file.write(content.encode())
        except OSError as error:
            for made in created:
                made.unlink()
            if isinstance(error, FileExistsError):  # created while the cluster was inspected
                raise _already_exists(path) from error
            raise SlurmddpError(f"{quote_value(str(path))} cannot be written: {error.strerror}") from error


def _already_exists(path: Path) -> UsageError:
    advice = "edit it, remove it first, or give another name, as in: slurmddp init NAME"
    return UsageError(f"{quote_value(str(path))} exists already and is not changed; {advice}")
