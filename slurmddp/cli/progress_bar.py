"""The progress of a run at the foot of a terminal, drawn from the run's events. Writes nothing elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

from slurmddp.cli.job_options import write
from slurmddp.runs.layout import RunDir, last_records

if TYPE_CHECKING:
    from rich.console import RenderableType

PER_S: Final = 4
WIDTH: Final = 30

Show = Callable[[bytes], None]


@contextmanager
def progress(run: RunDir, job_id: str, stream: TextIO, *, errors: TextIO) -> Iterator[Show]:
    """Give the function that shows a line of output; where both streams are a terminal, above a bar.

    Elsewhere a line is written to `stream` as it is.
    """
    if not (stream.isatty() and errors.isatty()):
        yield lambda line: write(stream, line)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=errors)
    bar = Bar(run, job_id)
    with Live(console=console, get_renderable=bar.draw, refresh_per_second=PER_S, transient=True):
        yield lambda line: console.out(line.decode(errors="replace").removesuffix("\n"), highlight=False)


class Bar:
    """How far one job of a run is."""

    def __init__(self, run: RunDir, job_id: str) -> None:
        self._events = run.events
        self._job_id = job_id
        self._first: dict[str, Any] | None = None

    def draw(self) -> "RenderableType":
        """Return the bar as it is now; nothing before the program has logged a step."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        last = self._last()
        if last is None:
            return ""
        self._first = self._first or last
        table = Table.grid(padding=(0, 2))
        step, total = last["step"], last["total"]
        bar = ProgressBar(total=total, completed=step, width=WIDTH)
        table.add_row(f"step {step}/{total}", bar, *words(last["values"]), left(self._first, last, time.time()))
        return table

    def _last(self) -> dict[str, Any] | None:
        """Return the job's newest metrics."""
        found = None
        for record in last_records(self._events):
            if record.get("event") == "metrics" and record.get("job") == self._job_id:
                found = record
        return found


def words(values: dict[str, Any]) -> list[str]:
    """Return the numbers that a bar has room for, as texts."""
    shown = []
    if isinstance(values.get("epoch"), int | float):
        shown.append(f"epoch {values['epoch']:g}")
    if isinstance(values.get("loss"), int | float):
        shown.append(f"loss {values['loss']:.4g}")
    if isinstance(values.get("samples_per_s"), int | float):
        shown.append(f"{values['samples_per_s']:.0f} samples/s")
    return shown


def left(first: dict[str, Any], last: dict[str, Any], now: float) -> str:
    """Return how long the rest will take, at the pace between two records; empty when there is no pace yet."""
    steps = last["step"] - first["step"]
    if steps <= 0:
        return ""
    rest_s = (last["total"] - last["step"]) * (last["time"] - first["time"]) / steps - (now - last["time"])
    return f"{timedelta(seconds=max(0, round(rest_s)))} left"
