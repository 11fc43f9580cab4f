"""A progress bar in the last line of a terminal, drawn from the events of a run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from slurmddp.cli.job_command import write_bytes
from slurmddp.cli.status_format import format_metrics
from slurmddp.monitoring.status.run_progress import read_progress
from slurmddp.runs.history import read_newest
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
    bar = ProgressBar(run, job_id)
    with Live(console=console, get_renderable=bar.draw, refresh_per_second=PER_S, transient=True):
        yield lambda line: console.out(line.decode(errors="replace").removesuffix("\n"), highlight=False)


class ProgressBar:
    """The progress of one job of a run."""

    def __init__(self, run: RunDir, job_id: str) -> None:
        self._run, self._job_id = run, job_id

    def draw(self) -> "RenderableType":
        """Return the bar as it is now; empty before the program has logged a step."""
        from rich.progress_bar import ProgressBar as RichBar
        from rich.table import Table

        history = read_newest(self._run)
        progress = read_progress(self._run, history, self._job_id, running=True, now=time.time())
        step, total = progress.step, progress.total
        if step is None or total is None:
            return ""
        table = Table.grid(padding=(0, 2))
        bar = RichBar(total=total, completed=step, width=WIDTH)
        table.add_row(f"step {step}/{total}", bar, *format_metrics(progress))
        return table
