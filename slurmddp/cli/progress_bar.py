"""A progress bar in the last line of a terminal, drawn from the events of a run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

from slurmddp.cli.job_command import write_bytes
from slurmddp.cli.status_format import format_metrics
from slurmddp.monitoring.status.run_progress import read_progress
from slurmddp.runs.facts import read_job
from slurmddp.runs.layout import RunDir

if TYPE_CHECKING:
    from rich.console import RenderableType

PER_S: Final = 4
WIDTH: Final = 30

Show = Callable[[bytes], None]


@contextmanager
def show_progress(run: RunDir, job_id: str, stream: TextIO, *, errors: TextIO) -> Iterator[Show]:
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
    with Live(console=console, get_renderable=draw, refresh_per_second=PER_S, transient=True):
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
    table.add_row(
        f"step {step}/{total}", ProgressBar(total=total, completed=step, width=WIDTH), *format_metrics(progress)
    )
    return table
