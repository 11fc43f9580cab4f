"""The command line. The group, and the one place that turns errors into a line and an exit status."""

import gc
import os
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from slurmddp.errors import SlurmddpError, UsageError
from slurmddp.version import __version__

_COMMANDS = {
    "render": ("slurmddp.cli.render", "Print the script of a job; nothing is written or submitted."),
    "submit": ("slurmddp.cli.submit", "Submit exactly that script; stdout is the job id alone."),
    "run": ("slurmddp.cli.run", "Run the same job on this machine, without Slurm."),
    "sweep": ("slurmddp.cli.sweep", "Submit many settings as one array, and show what came out."),
    "cluster": ("slurmddp.cli.cluster", "Show the partitions: GPUs, CPUs, memory, limits, preemption."),
    "status": ("slurmddp.cli.status", "Runs and their jobs: state, why, progress, time to the end."),
    "cancel": ("slurmddp.cli.cancel", "Cancel jobs of runs, so that they stay cancelled."),
    "logs": ("slurmddp.cli.logs", "What a job prints, and has printed: rank 0, any rank, all of them."),
    "watch": ("slurmddp.cli.watch.watch", "Jobs, curves and output on the whole screen, as they go."),
    "requeue": ("slurmddp.cli.requeue", "Put a job back into the queue, to start again in seconds."),
    "diagnose": ("slurmddp.cli.diagnose", "Why a job failed, and what to type next."),
    "doctor": ("slurmddp.cli.doctor", "What would make a job fail, before it is queued and on the nodes."),
    "compare": ("slurmddp.cli.compare", "Do ranks, or runs, hold the same model."),
    "report": ("slurmddp.cli.report", "A run as one HTML page: attempts, goodput, curves, why it failed."),
    "tensorboard": ("slurmddp.cli.tensorboard", "Show runs by TensorBoard, and how to reach it from afar."),
    "config": ("slurmddp.cli.config", "Every value of a job, and where it came from."),
    "init": ("slurmddp.cli.init", "Write a job file to begin with, for this cluster."),
    "completion": ("slurmddp.cli.completion", "What makes bash, zsh or fish complete these words."),
    "scale": ("slurmddp.cli.scale", "How many GPUs a training is worth, by measurement."),
    "sandbox": ("slurmddp.cli.sandbox", "A real Slurm on this machine, to try jobs on."),
}


COMPLETE_VARIABLE: Final = "_SLURMDDP_COMPLETE"
"""By which click knows that a shell asks (https://click.palletsprojects.com/shell-completion)."""


class _LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = __import__(_COMMANDS[cmd_name][0], fromlist=[cmd_name])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def group() -> None:
    """From a training script to a multi-node PyTorch DDP job on Slurm.

    slurmddp submit --nodes 2 --gpus-per-node 8 train.py --lr 0.1
    """


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its status."""
    if os.environ.get(COMPLETE_VARIABLE, "").endswith("_complete"):
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 until the end: a shell completes, and wants no words
    gc.set_threshold(100_000)  # a start makes some 30,000 objects that stay; searching them took 7 % of its time
    status = _run(args)
    gc.freeze()  # else the interpreter searches all that was imported for cycles at its end, for some 30 ms
    sys.exit(status)


def output_lost(error: OSError) -> SlurmddpError:
    """Return the error for a standard output that takes nothing, and point it nowhere from here on.

    Else the interpreter would try again at its end, and complain in its own way.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SlurmddpError(f"cannot write to standard output: {error.strerror}")


def _run(args: list[str] | None) -> int:
    if sys.stdout is None:
        return _fail("cannot write to standard output: it is closed", SlurmddpError.exit_status)
    try:
        return _status(args)
    except BrokenPipeError as error:
        return output_lost(error).exit_status
    except OSError as error:
        if _is_of_echo(error):
            return _fail(str(output_lost(error)), SlurmddpError.exit_status)
        place = _place(error)
        if not place:
            raise
        return _fail(f"{place}: {error.strerror}", SlurmddpError.exit_status)


def _is_of_echo(error: OSError) -> bool:
    """Tell whether it was printing that failed, and not some file."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code is click.echo.__code__


def _place(error: OSError) -> str:
    """Return the path that the system objects to; empty when it is none, which is a bug."""
    if error.filename:
        from slurmddp.text import shown

        return shown(os.fsdecode(error.filename))
    return "the working directory" if isinstance(error, FileNotFoundError) else ""


def _status(args: list[str] | None) -> int:
    try:
        status: Any = group.main(args, prog_name="slurmddp", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _fail(error.format_message().replace("\n", " "), UsageError.exit_status)
    except SlurmddpError as error:
        return _fail(str(error), error.exit_status)
    except (click.Abort, KeyboardInterrupt):
        return 130
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    from slurmddp.text import printable

    click.echo("\n".join(map(printable, f"Error: {message}".split("\n"))), err=True)
    return status
