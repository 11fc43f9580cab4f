"""`slurmddp run`: run a job on this machine, without Slurm, or on the nodes of an allocation."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from slurmddp.cli.job_command import JobCommand, resolve_job
from slurmddp.cli.request_options import print_reading, with_ranks
from slurmddp.cli.screen import print_json, print_message, write_bytes
from slurmddp.cli.status_format import format_metrics
from slurmddp.errors import UsageError
from slurmddp.monitoring.status.job_status import read_progress
from slurmddp.runs.facts import read_job
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import check_program, check_pythons, check_variables
from slurmddp.submission import allocation, run_local
from slurmddp.submission.prepare_data import prepare
from slurmddp.text import count, quote_value

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOCAL_OPTIONS: Final = (
    *("gpus-per-node", "ntasks-per-node", "job-name", "rendezvous", "interface", "no-python", "python"),
    *("env", "preflight", "tracker-ids", "runs-dir", "profile"),
)


@click.command(cls=JobCommand, keys=_LOCAL_OPTIONS, epilog="--gpus-per-node 8 train.py --lr 0.1")
@click.option("--devices", metavar="N,N...", help="GPUs to use, as in 0,2 [default: as many as there are ranks].")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; the output goes to stderr.")
def run(*, devices: str | None, as_json: bool, **parameters: Any) -> int:
    """Run the same job on this machine, without Slurm (torchrun underneath), or on the nodes of your allocation.

    In a shell of `salloc`, the job's script starts its ranks once on all nodes of the allocation; --devices keeps them
    here. The output of rank 0 is printed; each rank also has a file in the run's folder. On this machine, options for
    nodes, queues and set-up in a job file are ignored, except the Python of `venv`.
    """
    resolved = with_ranks(resolve_job(parameters))
    spec = resolved.spec
    if spec.script:
        typed = shlex.join(["bash", *spec.command])
        raise UsageError(
            f"{quote_value(spec.script.path)} is a batch script, which starts its ranks by itself; `slurmddp submit` "
            f"queues it, and inside an allocation type: {typed}"
        )
    perform: Callable[..., int] = run_local.perform
    in_allocation = not devices and allocation.is_inside(os.environ)
    if in_allocation:
        spec = allocation.fit(spec, os.environ)
    print_reading(resolved, f"--ntasks-per-node {spec.tasks_per_node}")
    check_program(spec)
    check_pythons(spec, "check the path")
    check_variables(spec, os.environ)
    prepare(spec)
    if in_allocation:
        plan, perform = allocation.plan(spec, os.environ), partial(allocation.perform, spec=spec)
        ranks = f"{count(spec.nodes, 'node')} x {count(spec.tasks_per_node, 'rank')}"
        print_message(f"on all nodes of allocation {os.environ['SLURM_JOB_ID']}: {ranks}")
    else:
        plan = run_local.plan(spec, devices=devices, environ=os.environ)
    if spec.nodes > 1 and not in_allocation:
        print_message(f"the job has {spec.nodes} nodes; only the ranks of one node run here")
    try:
        with show_progress(plan.run, plan.job_id, sys.stderr if as_json else sys.stdout, errors=sys.stderr) as show:
            status = perform(plan, show=show)
    except KeyboardInterrupt:
        print_message(f"interrupted; the output is in {plan.console_log.parent}")
        raise
    print_message(f"run {spec.job_name}: {plan.run.path}")
    if as_json:
        print_json(jobs=[{"job_id": plan.job_id, "run": str(plan.run.path), "status": status}])
    if status == 0:
        return 0
    log = plan.run.batch_log(plan.job_id) if in_allocation else plan.console_log
    print_message(
        run_local.failure_reason(plan) or f"the run ended with status {status}, and no rank left a reason; see {log}"
    )
    return 1


@contextmanager
def show_progress(run: RunDir, job_id: str, stream: TextIO, *, errors: TextIO) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that prints a line of output, above a progress bar if both streams are a terminal.

    Otherwise the function writes the line to `stream` unchanged.
    """
    if not (stream.isatty() and errors.isatty()):
        yield lambda line: write_bytes(stream, line)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=errors)
    draw = partial(draw_progress, run, job_id)
    with Live(console=console, get_renderable=draw, refresh_per_second=4, transient=True):
        yield lambda line: console.out(line.decode(errors="replace").removesuffix("\n"), highlight=False)


def draw_progress(run: RunDir, job_id: str) -> "RenderableType":
    """Return the bar of one job of a run as it is now; empty before the program has logged a step."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    progress = read_progress(run, read_job(run, job_id), now=time.time())
    step, total = progress.step, progress.total
    if step is None or total is None:
        return ""
    table = Table.grid(padding=(0, 2))
    table.add_row(f"step {step}/{total}", ProgressBar(total=total, completed=step, width=30), *format_metrics(progress))
    return table
