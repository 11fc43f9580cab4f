"""What the job commands share: options made from their declaration, where COMMAND begins, and the two streams."""

import os
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from slurmddp.cli import output_lost
from slurmddp.config import job_files
from slurmddp.config import resolve as config
from slurmddp.config.job_spec import JOB_FIELDS
from slurmddp.config.options import Field
from slurmddp.config.toml import Source
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.errors import UsageError
from slurmddp.text import shown

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_INSTEAD: Final = {
    **dict.fromkeys(("--gpus", "-G", "--gres", "--gpus-per-task"), "--gpus-per-node"),
    **dict.fromkeys(
        ("-n", "--ntasks", "--nproc-per-node", "--nproc_per_node"), "--ntasks-per-node (ranks on each node)"
    ),
    "--nnodes": "--nodes",
}
"""What sbatch and torchrun call it, and what it is called here."""
_OF_JOBS: Final = frozenset(
    {"-N", "--nodes", "--ntasks-per-node", "--gpus-per-node", "--cpus-per-task", "--partition", "--account", "--qos"}
    | {"--time", "--launcher", "--hold", "--after", "--after-ok", "--dry-run", "--wait", "--follow"}
)
"""Options that hardly a program has: behind COMMAND they were most likely meant for the job."""
_OUTPUT: Final = ("-o", "--output", "-e", "--error")


def runs_dir() -> str:
    """Return the folder of runs that the configuration names."""
    return config.runs_dir(configuration().files, os.environ)


runs_dir_option: Final = click.option(
    "--runs-dir",
    default=runs_dir,
    metavar="DIR",
    help=f"Where the folders of runs lie. [default: {JOB_FIELDS['runs-dir'].default}]",
)
"""For commands that look at runs and describe no job."""

SYNOPSIS: Final = "[JOB.toml] [OPTIONS] [COMMAND...]"


JOB: Final = "Options of the job"
WORKER: Final = "Options of the bundled worker"


class _JobOption(click.Option):
    section = JOB


class _WorkerOption(click.Option):
    section = WORKER


class JobCommand(click.Command):
    """A command of the form `[JOB.toml] [options] [COMMAND...]`; options end at COMMAND's first word.

    COMMAND's words are parted by hand: click would lose `-m` and a second `--`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Part the words, and let click read the options alone."""
        own, job_file, words = split(args, self._values())
        try:
            rest = super().parse_args(ctx, own)
        except click.NoSuchOption as error:
            raise UsageError(_advice(error, self._values())) from error
        ctx.params["job_file"] = Path(job_file) if job_file else None
        ctx.params["words"] = words
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete options until COMMAND begins; then, and for a job file, files."""
        if not ctx.params.get("words") and incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections: the command's own, the job's, the bundled worker's."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], JOB: [], WORKER: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                sections[getattr(parameter, "section", "Options")].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _values(self) -> dict[str, bool]:
        """Tell for each option whether a value follows it."""
        options = [parameter for parameter in self.params if isinstance(parameter, click.Option)]
        return {name: not item.is_flag for item in options for name in (*item.opts, *item.secondary_opts)}


def split(args: Sequence[str], takes_value: dict[str, bool]) -> tuple[list[str], str | None, tuple[str, ...]]:
    """Part words into our options, the job file, and COMMAND.

    `takes_value` tells of each spelling of an option whether its value is the next word; of `--nodes=2` and `-N2`
    it is not.
    """
    own: list[str] = []
    job_file = None
    index = 0
    while index < len(args):
        word = args[index]
        if word == "--":
            return own, job_file, tuple(args[index + 1 :])
        if word == "-m":
            return own, job_file, tuple(args[index:])
        if not word.startswith("-") or word == "-":
            if job_file is not None or not word.endswith(".toml"):
                return own, job_file, tuple(args[index:])
            job_file = word
            index += 1
            continue
        length = 2 if takes_value.get(word, False) else 1
        own += args[index : index + length]
        index += length
    return own, job_file, ()


def job_options(keys: Sequence[str] = tuple(JOB_FIELDS)) -> Callable[[Any], Any]:
    """Return a decorator that adds these job options, and those of the bundled worker."""

    def add(function: Any) -> Any:
        for field in reversed(WORKER_FIELDS.values()):
            function = _click_option(field, _WorkerOption, f"worker_{field.name}")(function)
        for key in reversed(keys):
            function = _click_option(JOB_FIELDS[key], _JobOption, JOB_FIELDS[key].name)(function)
        return function

    return add


def given(parameters: dict[str, Any], fields: Mapping[str, Field] = JOB_FIELDS, prefix: str = "") -> dict[str, Any]:
    """Return the options of `fields` that were on the command line, by key."""
    values = {key: parameters.get(prefix + field.name) for key, field in fields.items()}
    return {key: value for key, value in values.items() if value not in (None, ())}


def resolve(
    job_file: Path | None,
    words: tuple[str, ...],
    parameters: dict[str, Any],
    files: Sequence[Source] | None = None,
) -> config.Resolved:
    """Return the job that the command line, the environment, the job file and the configuration ask for."""
    return config.resolve(
        options=given(parameters),
        words=words,
        job_file=job_file,
        environ=os.environ,
        worker=given(parameters, WORKER_FIELDS, "worker_"),
        configuration=configuration().files if files is None else files,
    )


def configuration() -> job_files.Configuration:
    """Return the files of project and user; say of each that does not count why."""
    found = job_files.find(Path.cwd())
    for file in found.ignored:
        tell(f"configuration file {shown(str(file.path))} is ignored: {file.why}")
    return found


def tell_of_late(command: Sequence[str]) -> None:
    """Say which words behind COMMAND look like options of the job; they go to the program."""
    if late := [name for word in command[1:] if (name := word.partition("=")[0]) in _OF_JOBS]:
        names = ", ".join(dict.fromkeys(late))
        tell(f"{shown(command[0])} gets {names}; what is meant for the job stands before COMMAND")


def tell(line: str) -> None:
    """Print a line for people; stdout is for the result alone."""
    click.echo(line, err=True)


def write(stream: TextIO, raw: bytes) -> None:
    """Write bytes as they are, at once; raise SlurmddpError when there is no room for them."""
    try:
        stream.buffer.write(raw)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_lost(error) from error


def _advice(error: click.NoSuchOption, known: Container[str]) -> str:
    """Return what to type instead of an option that a command does not have."""
    name = error.option_name
    instead = _INSTEAD.get(name, "")
    if instead.split(" ")[0] in known:
        return f"No such option {shown(name)}; say {instead}"
    if name in _OUTPUT:
        return f"No such option {shown(name)}; output is in the run's folder, jobs/NAME/logs"
    more = " Another option of sbatch is given as --sbatch KEY=VALUE" if "--sbatch" in known else ""
    return f"{error.format_message()}{more}"


def _click_option(field: Field, kind: type[click.Option], name: str) -> Callable[[Any], Any]:
    option = field.option
    names = [word for word in (option.short, f"--{field.key}", f"--{option.also}" if option.also else "") if word]
    if field.is_switch:
        both = field.default or kind is _WorkerOption
        names = [f"--{field.key}/--no-{field.key}"] if both else names
        return click.option(*names, name, cls=kind, is_flag=True, default=None, help=_help(field))
    return click.option(
        *names,
        name,
        cls=kind,
        metavar=option.metavar or "|".join(field.choices) or ("N" if field.is_number else "TEXT"),
        multiple=field.is_list,
        help=_help(field),
        shell_complete=lambda _context, _option, incomplete: [
            word for word in field.choices if word.startswith(incomplete)
        ],
    )


def _help(field: Field) -> str:
    several = " Repeatable." if field.is_list else ""
    default = field.default
    shown = f" [default: {default}]" if isinstance(default, str | int | float) and not isinstance(default, bool) else ""
    return f"{field.option.help}{several}{shown}"
