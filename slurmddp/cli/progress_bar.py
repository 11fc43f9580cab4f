"""A progress bar in the last line of a terminal, drawn from the events of a run."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

from slurmddp.cli.job_command import write_bytes
from slurmddp.runs.layout import RunDir, last_records

if TYPE_CHECKING:
    from rich.console import RenderableType

PER_S: Final = 4
WIDTH: Final = 30
_SHOWN: Final = {"epoch": "epoch {:g}", "loss": "loss {:.4g}", "samples_per_s": "{:.0f} samples/s"}

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
        self._events = run.events
        self._job_id = job_id
        self._first: dict[str, Any] | None = None

    def draw(self) -> "RenderableType":
        """Return the bar as it is now; empty before the program has logged a step."""
        from rich.progress_bar import ProgressBar as RichBar
        from rich.table import Table

        last = self._last_metrics()
        if last is None:
            return ""
        self._first = self._first or last
        table = Table.grid(padding=(0, 2))
        step, total = last["step"], last["total"]
        bar = RichBar(total=total, completed=step, width=WIDTH)
        table.add_row(
            f"step {step}/{total}",
            bar,
            *format_metrics(last["values"]),
            format_time_left(self._first, last, time.time()),
        )
        return table

    def _last_metrics(self) -> dict[str, Any] | None:
        """Return the newest record of metrics of the job."""
        found = None
        for record in last_records(self._events):
            if record.get("event") == "metrics" and record.get("job") == self._job_id:
                found = record
        return found


def format_metrics(values: dict[str, Any]) -> list[str]:
    """Return the metrics that the bar shows, as texts."""
    return [text.format(values[name]) for name, text in _SHOWN.items() if isinstance(values.get(name), int | float)]


def format_time_left(first: dict[str, Any], last: dict[str, Any], now: float) -> str:
    """Return the time left at the speed between two records; empty before there are two."""
    steps = last["step"] - first["step"]
    if steps <= 0:
        return ""
    rest_s = (last["total"] - last["step"]) * (last["time"] - first["time"]) / steps - (now - last["time"])
    return f"{timedelta(seconds=max(0, round(rest_s)))} left"
