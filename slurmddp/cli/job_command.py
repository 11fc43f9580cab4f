"""What the job commands share: their options, the split at COMMAND, the configuration."""

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from slurmddp.cli import EARLY, commands_with
from slurmddp.cli.screen import print_message
from slurmddp.config import job_files
from slurmddp.config import resolve as config
from slurmddp.config.foreign_options import advise
from slurmddp.config.job_spec import JOB_FIELDS, SETUP
from slurmddp.config.option_types import Field
from slurmddp.config.toml import Source
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.errors import UsageError
from slurmddp.text import quote_value, suggest

_JOB_ONLY: Final = frozenset(
    {"-N", "--nodes", "--ntasks-per-node", "--gpus-per-node", "--cpus-per-task", "--partition", "--account", "--qos"}
    | {"--time", "--launcher", "--hold", "--after", "--after-ok", "--dry-run", "--wait", "--follow"}
    | {"--gpus"}  # of `scale`
)
"""Options that training programs rarely have: behind COMMAND they were most likely meant for the job."""
_BY_NAME: Final = {field.name: field for field in JOB_FIELDS.values()}
"""The options of the job, by the names of the parameters that hold their values."""


_COMMON: Final = (
    *("nodes", "gpus-per-node", "cpus-per-task", "partition", "account", "time"),
    *("job-name", "launcher", "venv", "env"),
)
"""The options of the job that `--help` shows."""
_HELP_SCOPE: Final = "slurmddp.help_scope"
_HELP_SCOPES: Final = {
    "help-all": "Show all options of the job.",
    "help-worker": "Show the options of the bundled worker.",
}


class JobCommand(click.Command):
    """A command of the form `[JOB.toml] [options] [COMMAND...]`; options end at COMMAND's first word.

    `split_command_line` separates COMMAND, since click would drop `-m` and a second `--`.
    """

    def __init__(
        self, name: str, *, keys: Sequence[str] = tuple(JOB_FIELDS), params: Sequence[click.Parameter], **extra: Any
    ) -> None:
        """Add the options of the job with these keys, those of the bundled worker, and the help on both."""
        job = [build_option(JOB_FIELDS[key], JOB_FIELDS[key].name) for key in keys]
        worker = [build_option(field, f"worker_{field.name}") for field in WORKER_FIELDS.values()]
        hidden: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_help}
        helps = [click.Option([f"--{scope}"], help=text, **hidden) for scope, text in _HELP_SCOPES.items()]
        shape = "[JOB.toml] [OPTIONS] [COMMAND...]"
        super().__init__(name, params=[*job, *worker, *helps, *params], options_metavar=shape, **extra)
        self.epilog = self.epilog or "--nodes 2 --gpus-per-node 8 train.py --lr 0.1"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Separate COMMAND, and let click parse the options."""
        options = [item for item in self.params if isinstance(item, click.Option)]
        takes_value = {name: not item.is_flag for item in options for name in (*item.opts, *item.secondary_opts)}
        own, job_file, words = split_command_line(args, takes_value)
        for before, word in pairwise(("", *own)):
            is_long = f"-{word}".partition("=")[0] in takes_value and word not in takes_value
            if is_long and not takes_value.get(before):  # else it would be read as a short option with a value
                raise UsageError(f"{quote_value(word)} has one dash; type -{word}")
        try:
            rest = super().parse_args(ctx, list(own))
        except click.NoSuchOption as error:
            if error.option_name in EARLY:
                raise
            raise UsageError(_explain_unknown_option(error, takes_value)) from error
        except click.BadOptionUsage as error:
            opposite = f"--no-{error.option_name.lstrip('-')}"
            if opposite not in takes_value:
                raise
            raise UsageError(f"{error.message.rstrip('.')}; {opposite} is the opposite") from error
        if words and args[len(own) + bool(job_file)] != "--":
            _check_placement(f"{ctx.command_path} ", own, job_file, words, takes_value)
            _report_late_options(words, self.params)
        typed = self.make_parser(ctx).parse_args(list(own))[2]  # each option in its place, as often as it was typed
        ctx.params["setup_order"] = tuple(item.name for item in typed if item.name in SETUP)
        ctx.params["job_file"] = Path(job_file) if job_file else None
        ctx.params["words"] = words
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options before COMMAND, and file names elsewhere."""
        if not ctx.params.get("words") and incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(incomplete, type="file")]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the common options, all options of the job in groups, or those of the bundled worker."""
        scope = ctx.meta.get(_HELP_SCOPE)
        items = [(item.name or "", item) for item in self.get_params(ctx)]
        sections: dict[str, list[click.Parameter]] = {}
        if scope == "help_worker":
            sections["Options of the bundled worker"] = [item for name, item in items if name.startswith("worker_")]
        else:
            known = dict(items)
            for field in map(JOB_FIELDS.__getitem__, JOB_FIELDS if scope else _COMMON):
                title = field.group if scope else "Common options of the job"
                sections.setdefault(title, []).extend([known[field.name]] if field.name in known else [])
            own = [item for name, item in items if name not in _BY_NAME and not name.startswith("worker_")]
            needed = [item for item in own if {*item.opts} & {*str(self.epilog).split()}]  # those of the example
            rest = [item for item in own if item not in needed]
            sections = {"Needed": needed} | sections
            sections["Options of this command"] = sorted(rest, key=lambda item: (item.name or "").startswith("help"))
        for title, shown in sections.items():
            if records := [record for item in shown if (record := item.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print a typical line."""
        if _HELP_SCOPE not in ctx.meta:
            with formatter.section("Example (options end at COMMAND's first word)"):
                formatter.write_text(f"slurmddp {ctx.info_name} {self.epilog}")


def _check_placement(
    typed: str, own: list[str], job_file: str | None, words: tuple[str, ...], takes_value: Mapping[str, bool]
) -> None:
    """Raise UsageError with the corrected line for options of the job that stand behind COMMAND."""
    if words[0].startswith(("\u2013", "\u2014")):
        raise UsageError(
            f"{quote_value(words[0])} begins with a long dash; an option has two short ones, as in --nodes 2"
        )
    file = [job_file] if job_file else []
    late, kept = _split_late_options(words, takes_value)
    late += ["VALUE"] * bool(late and takes_value.get(late[-1]))  # it has none
    if late:
        raise UsageError(
            f"{quote_value(late[0])} stands behind COMMAND, and {quote_value(words[0])} would get it; type: "
            f"{typed}{shlex.join([*file, *own, *late, *kept])}; or, if the program is to get it: "
            f"{typed}{shlex.join([*file, *own, '--', *words])}"
        )


def _report_late_options(words: Sequence[str], params: Sequence[click.Parameter]) -> None:
    """Print which options of slurmddp COMMAND gets, because they stand behind its first word."""
    jobs = {} if job_files.read_batch_script(words[0]) else _BY_NAME  # a program may have options of these names
    own = [item for item in params if item.name not in jobs and not str(item.name).startswith("worker_")]
    names = {name for item in own for name in item.opts if name.startswith("--")} - {"--diff"}  # it may stand last
    names |= {"-A", "-p", "-t"}  # of the job; programs have such options, too
    if late := [name for word in words[1:] if (name := word.partition("=")[0]) in names]:
        print_message(
            f"passed to the program: {' '.join(late)}; what is for slurmddp stands before {quote_value(words[0])}"
        )


def split_command_line(
    args: Sequence[str], takes_value: Mapping[str, bool]
) -> tuple[list[str], str | None, tuple[str, ...]]:
    """Split words into the options of slurmddp, the job file, and COMMAND.

    `takes_value` says for each spelling of an option whether the next word is its value, which is not so for
    `--nodes=2` and `-N2`.
    """
    own: list[str] = []
    job_file, rest = None, list(args)
    while rest and rest[0] != "--":
        word = rest[0]
        length = 2 if takes_value.get(word) else 1
        if word.startswith("-") and word not in ("-", "-m"):
            own += rest[:length]
        elif word.endswith(".toml") and job_file is None:
            job_file = word
        else:
            return own, job_file, tuple(rest)
        rest = rest[length:]
    return own, job_file, tuple(rest[1:])


def _split_late_options(words: Sequence[str], takes_value: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return the options of the job behind COMMAND's first word, with their values, and the other words."""
    late: list[str] = []
    kept = list(words[:1])
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        following = rest[:1] if takes_value.get(name) and not equals else []
        is_late = name in takes_value.keys() & _JOB_ONLY and not re.search(r"{\w+}", value or "".join(following))
        (late if is_late else kept).append(word)
        if is_late and following:
            late.append(rest.pop(0))
    return late, kept


def _show_help(ctx: click.Context, option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value:
        ctx.meta[_HELP_SCOPE] = option.name
        click.echo(ctx.get_help())
        ctx.exit()


def resolve_job(parameters: Mapping[str, Any], files: Sequence[Source] | None = None) -> config.Resolved:
    """Return the job that a command's parameters, the environment and the files describe; print unknown variables."""
    print_message(*(f"variable {name} is ignored: {why}" for name, why in config.unknown_variables(os.environ)))
    return config.resolve(
        options=parameters,
        words=parameters["words"],
        job_file=parameters["job_file"],
        environ=os.environ,
        worker={field.name: parameters.get(f"worker_{field.name}") for field in WORKER_FIELDS.values()},
        configuration=find_configuration().files if files is None else files,
    )


def find_configuration() -> job_files.Configuration:
    """Return the configuration files of the project and the user; report each one that is ignored, and why."""
    found = job_files.find_configuration(Path.cwd())
    for file in found.ignored:
        print_message(f"configuration file {quote_value(str(file.path))} is ignored: {file.why}")
    return found


def _explain_unknown_option(error: click.NoSuchOption, known: Collection[str]) -> str:
    """Return the message for an option that the command does not have, with what to type instead."""
    name = error.option_name
    instead = advise(name, known) or (f"did you mean {name}s?" if f"{name}s" in known else "")
    if not instead and (having := commands_with(name)):
        return f"{quote_value(name)} is an option of `slurmddp {having[0]}`, but not of this command; leave it out"
    instead = instead or suggest(name, (one for one in known if one.startswith("--")), "", cutoff=0.75)
    if not instead and "--sbatch" in known and re.fullmatch("--[a-z-]+", name):
        instead = f"if it is one of sbatch's, use --sbatch {name[2:]}=VALUE; --help-all lists the options"
    return f"No such option {quote_value(name)}; {instead or '--help-all lists the options'}"


def build_option(field: Field, name: str) -> click.Option:
    """Return the option of a job, or of the bundled worker, for a command."""
    option, default = field.option, field.default
    text = option.help + " Repeatable." * field.is_list
    if isinstance(default, bool):
        text += f" [default: {'yes' if default else 'no'}]" * option.help.startswith("Whether")
    elif isinstance(default, str | int | float):
        text += f" [default: {default}]"
    names = [word for word in (option.short, f"--{field.key}", f"--{option.also}" if option.also else "") if word]
    if field.is_switch:
        both = default or name not in _BY_NAME
        names = [f"--{field.key}/--no-{field.key}"] if both else names
        return click.Option([*names, name], is_flag=True, default=None, help=text)
    return click.Option(
        [*names, name],
        metavar=option.metavar or "|".join(field.choices) or ("N" if field.bare in (int, float) else "TEXT"),
        multiple=field.is_list,
        help=text,
        shell_complete=lambda _context, _option, incomplete: [
            choice for choice in field.choices if choice.startswith(incomplete)
        ],
    )
