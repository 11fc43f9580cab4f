"""The command line: the group of commands, and the only place that turns errors into messages and exit statuses."""

import errno
import gc
import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

gc.set_threshold(100_000)  # it finds nothing, and takes 3 ms of the imports below and a seventh of a long `status`

import click  # noqa: E402 - see above

from slurmddp.errors import SlurmddpError, UsageError  # noqa: E402
from slurmddp.text import escape_text, quote_value, suggest  # noqa: E402
from slurmddp.version import __version__  # noqa: E402

_COMMANDS: Final = {
    "init": ("slurmddp.cli.init", "Write a first job file for this cluster."),
    "doctor": ("slurmddp.cli.doctor", "Check for what would make a job fail, before it is submitted."),
    "submit": ("slurmddp.cli.submit", "Submit a job; stdout is only its id."),
    "sweep": ("slurmddp.cli.sweep", "Submit many settings as one array, and show their results."),
    "run": ("slurmddp.cli.run", "Run the same job on this machine, without Slurm."),
    "render": ("slurmddp.cli.render", "Print the batch script of a job; nothing is submitted."),
    "status": ("slurmddp.cli.status", "Show runs and their jobs: state, reason, progress, time left."),
    "watch": ("slurmddp.cli.watch.watch", "Show jobs, curves and output live on the whole screen."),
    "logs": ("slurmddp.cli.logs", "Show the output of a job: of rank 0, of any rank, or of all."),
    "stacks": ("slurmddp.cli.ranks", "Show where each rank of a running job stands in its program."),
    "exec": ("slurmddp.cli.ranks", "Run a command, or a shell, beside a rank of a running job."),
    "requeue": ("slurmddp.cli.job_control", "Requeue a job, so that it starts again in seconds."),
    "cancel": ("slurmddp.cli.job_control", "Cancel jobs of runs; they are not requeued."),
    "diagnose": ("slurmddp.cli.diagnose", "Show why a job failed, and what to type next."),
    "report": ("slurmddp.cli.report", "Write a run as one HTML page: attempts, goodput, curves, cause."),
    "tensorboard": ("slurmddp.cli.tensorboard", "Show runs in TensorBoard."),
    "compare": ("slurmddp.cli.compare", "Compare the models of ranks or runs."),
    "setup": ("slurmddp.cli.remote", "Look at the machine of --host, and put slurmddp there."),
    "pull": ("slurmddp.cli.remote", "Fetch a run's model, logs and report from --host."),
    "cluster": ("slurmddp.cli.cluster", "Show the partitions: GPUs, CPUs, memory, limits, preemption."),
    "nodes": ("slurmddp.cli.nodes", "Show what speaks against which node, with its age."),
    "sandbox": ("slurmddp.cli.sandbox", "Start a real Slurm on this machine, to try jobs."),
    "config": ("slurmddp.cli.config", "Show every value of a job, and its source."),
    "scale": ("slurmddp.cli.scale", "Measure how many GPUs a training can use efficiently."),
}
"""The module and the short help of each command, in the order of `--help`."""

_TITLES: Final = {"init": "Start", "status": "Watch", "diagnose": "Look back", "cluster": "Cluster", "config": "Tools"}
"""The headings of `--help`, by the command that follows each."""

EARLY: Final = ("--host", "--remote-dir")
"""Options that stand before the command."""

_HERE: Final = ("init", "run", "sandbox", "config")
"""The commands about this machine, which a host of the configuration is not for."""

_NOT_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN)
"""Errors of standard output or a disk that no file name comes with."""

_COMPLETE_VARIABLE: Final = "_SLURMDDP_COMPLETE"
"""Set by a shell that asks click for completions (https://click.palletsprojects.com/shell-completion)."""


class _HelpFormatter(click.HelpFormatter):
    """Help whose headings and names stand out on a terminal; click itself knows no NO_COLOR (https://no-color.org)."""

    is_plain = bool(os.environ.get("NO_COLOR"))

    def write_heading(self, heading: str) -> None:
        super().write_heading(heading if self.is_plain else click.style(heading, bold=True))

    def write_dl(self, rows: Iterable[tuple[str, str]], *sizes: int) -> None:
        colour = None if self.is_plain else "cyan"
        super().write_dl([(click.style(name, fg=colour, reset=bool(colour)), text) for name, text in rows], *sizes)


click.Context.formatter_class = _HelpFormatter


class _LazyGroup(click.Group):
    """A group that imports the module of a command only when the command is used."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(__import__(_COMMANDS[cmd_name][0], fromlist=[cmd_name]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names; an error for another word says which command may be meant."""
        if args[:1] == ["help"]:
            most = 2 + isinstance(self.get_command(ctx, "".join(args[1:2])), click.Group)
            if args[most:]:
                known = " ".join(args[:most])
                raise UsageError(f"help takes no more than the name of a command; type: slurmddp {known}")
            args = [*args[1:], "--help"]
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            raise UsageError(_explain_unknown_command(args))
        if found := find_host(ctx, args):
            from slurmddp.cli.remote import forward

            return args[0], click.Command(args[0], callback=lambda: forward(found, args)), []
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for name, (_, text) in _COMMANDS.items():
            if name in _TITLES:
                formatter.write_paragraph()
                formatter.write_heading(_TITLES[name])
            with formatter.indentation():
                formatter.write_dl([(name.ljust(width), text)])


def find_host(ctx: click.Context, args: list[str]) -> tuple[str, str, list[str]] | None:
    """Return what `Host.connect` needs for the machine that --host or the configuration names; None for this one.

    Parses the configuration only if it may have what was not typed.
    """
    is_help = args[0].startswith("-") or args[-1] == "--help" or args[1:2] == ["-h"]
    is_here = args[0] in ("setup", "pull") or ctx.params["over_ssh"] or ctx.resilient_parsing
    name, folder = ctx.params["host"], ctx.params["remote_dir"]
    if is_help or is_here or name == "" or (name is None and args[0] in _HERE):
        return None
    from slurmddp.config.configuration_files import SENT, find_files, iterate_project_folders

    typed = {key: value for key, value in (("host", name), ("remote-dir", folder)) if value is not None}
    files, _ = find_files(Path.cwd(), lambda *file: file)
    if any(key in content for *_, content in files for key in [b"remote-dir"] + [b"host"] * (name is None)):
        from slurmddp.config.resolve import find_remote

        is_sent = any((place / SENT).exists() for place in iterate_project_folders(Path.cwd()))
        found = {} if name is None and is_sent else find_remote(args, os.environ, ctx.params)
        name, folder = (found[key].raw if key in found else None for key in ("host", "remote-dir"))
    if name is None:
        return None
    return name, "slurmddp" if folder is None else folder, [word for key in typed for word in (f"--{key}", typed[key])]


def commands_with(option: str) -> list[str]:
    """Return the commands that have an option, `submit` first. Imports all commands."""
    commands = {name: group.get_command(click.Context(group), name) for name in _COMMANDS}
    having = [
        name
        for name, command in commands.items()
        if command and any(option in (*item.opts, *item.secondary_opts) for item in command.params)
    ]
    return sorted(having, key=lambda name: name != "submit")


def _explain_early_option(name: str, typed: list[str]) -> str:
    command = next((word for word in typed if word in _COMMANDS), "")
    having = commands_with(name)
    if not having or command not in ("", *having):
        place = f"slurmddp {command}".rstrip()
        return f"there is no option {quote_value(name)} of {place}; {place} --help lists what there is"
    words = [command or having[0], *typed]
    if command:
        words.pop(typed.index(command) + 1)
    return f"option {quote_value(name)} stands before the command; write it behind, as in: slurmddp {shlex.join(words)}"


def _explain_unknown_command(args: list[str]) -> str:
    said = f"there is no command {quote_value(args[0])}"
    if args[0].endswith((".toml", ".py")):
        return f"{said}; to submit it, type: slurmddp submit {shlex.join(args)}"
    return f"{said}; {suggest(args[0], (*_COMMANDS, 'help'), 'slurmddp --help lists the commands', cutoff=0.75)}"


@click.group(cls=_LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.option("--host", metavar="HOST", help="Run the command on this machine, by ssh.")
@click.option("--remote-dir", metavar="DIR", help="The folder for projects there.  [default: slurmddp]")
@click.option("--yes", is_flag=True, help="With --host: send the code also if it is large.")
@click.option("--over-ssh", is_flag=True, hidden=True)
@click.pass_context
def group(context: click.Context, /, *, over_ssh: bool, **_: object) -> int:
    """Run a training script as a multi-node PyTorch DDP job on Slurm.

    slurmddp submit --nodes 2 --gpus-per-node 8 train.py --lr 0.1

    slurmddp help COMMAND shows the options of a command; slurmddp alone shows where you are.
    """
    if over_ssh:
        from slurmddp.remote.connection import begin

        begin()
    if context.invoked_subcommand is None:
        if found := find_host(context, [""]):
            from slurmddp.cli.remote import forward

            return forward(found, [])
        from slurmddp.cli.overview import print_overview

        print_overview()
    return 0


def main() -> NoReturn:
    """Run the command line of this process, and end it.

    It ends without taking down the interpreter, which takes a fifth of the time of `render`.
    """
    os._exit(run_command_line())


def run_command_line(args: list[str] | None = None) -> int:
    """Run a command line, that of the process without `args`, and return its exit status."""
    if os.environ.get(_COMPLETE_VARIABLE, "").endswith("_complete"):
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 open until the end; a shell shows messages as completions
    if sys.stdout is None:
        return _print_error("cannot write to standard output: it is closed", SlurmddpError.exit_status)
    try:
        status = _run_command(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
    except BrokenPipeError:
        return SlurmddpError.exit_status
    except OSError as error:
        if not (said := _explain_system_error(error)):
            raise
        return _print_error(said, SlurmddpError.exit_status)
    return status


def _explain_system_error(error: OSError) -> str:
    """Return the message for an error with a path; empty if it has none, which is a bug."""
    if error.filename:
        path = Path(os.fsdecode(error.filename))
        if isinstance(error, FileNotFoundError) and not path.parent.exists():
            return f"there is no folder {quote_value(str(path.parent))} for {quote_value(path.name)}; make it first"
        advice = f"; its mode is shown by: ls -ld {quote_value(str(path))}" * isinstance(error, PermissionError)
        return f"{quote_value(str(path))} cannot be read or written: {error.strerror}{advice}"
    if error.errno in _NOT_WRITTEN:
        return f"standard output or a file cannot be written: {error.strerror}"
    return "the working directory no longer exists; type: cd DIR" if isinstance(error, FileNotFoundError) else ""


def _run_command(args: list[str]) -> int:
    try:
        status: Any = group.main(args, prog_name="slurmddp", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _print_error(_explain(error, args), UsageError.exit_status)
    except SlurmddpError as error:
        return _print_error(str(error), error.exit_status)
    except (click.Abort, KeyboardInterrupt):
        return 130
    return status if isinstance(status, int) else 0


def _explain(error: click.ClickException, typed: list[str]) -> str:
    """Return click's message in one line of plain words, with the command that shows what is allowed."""
    if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.command is group:
        near = suggest(error.option_name, error.possibilities or (), "", cutoff=0.75, show=quote_value)
        said = f"No such option {quote_value(error.option_name)}; {near}"
        return said if near else _explain_early_option(error.option_name, typed)
    said = " ".join(error.format_message().split()).rstrip(".")
    said = re.sub(r" is not in the range x>=(\d+)$", r" is not a whole number, \1 or more", said)
    said = re.sub(r"a valid integer( range)?", "a whole number", said)
    said = re.sub(r"a valid float( range)?", "a number", said).replace(". Did you mean ", "; did you mean ")
    if isinstance(error, click.NoSuchOption) and error.option_name in EARLY:
        example = f"slurmddp {error.option_name} NAME status"
        return f"option '{error.option_name}' stands behind the command; write it before, as in: {example}"
    context = error.ctx if isinstance(error, click.UsageError) and not said.endswith("?") else None
    if context and type(error) is click.UsageError:
        return f"{said}; allowed is: {context.command.get_usage(context).removeprefix('Usage: ')}"
    return f"{said}; `{context.command_path} --help` shows what is allowed" if context else said


def _print_error(message: str, status: int) -> int:
    """Print an error and return the exit status given for it."""
    click.echo("\n".join(map(escape_text, f"Error: {message}".split("\n"))), err=True)
    return status
