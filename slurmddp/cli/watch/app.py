"""The screen of `slurmddp watch`: jobs in a table; details, curves, events and output of the chosen one."""

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Footer, ProgressBar, Static

from slurmddp.cli.watch import sources
from slurmddp.cli.watch.sources import RunView
from slurmddp.cli.watch.widgets import COLOURS, Curve, JobTable, LogView, format_details, format_event
from slurmddp.errors import SlurmddpError
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.text import escape_text, format_duration

READ_S: Final = 1.0
"""Seconds between two reads of the files."""


class WatchApp(App[None]):
    """Shows jobs until the user quits or a signal comes, which is then in `return_code`."""

    TITLE = "slurmddp watch"
    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-normal"), (120, "-wide")]  # noqa: RUF012 as Textual declares it
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-middle"), (36, "-high")]  # noqa: RUF012 the same
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("question_mark,h", "toggle_keys", "Help"),
        ("l", "toggle_output", "Output"),
        ("s", "ask_slurm", "Ask Slurm"),
        Binding("escape", "show_jobs", "Back to the jobs", show=False),
        Binding("ctrl+c", f"end({signal.SIGINT:d})", "Quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True),
    ]

    def __init__(self, words: Sequence[str], runs_dir: str, environ: sources.Environ) -> None:
        super().__init__()
        self._words, self._runs_dir, self._environ = words, runs_dir, environ
        self._jobs: Sequence[JobStatus] = ()
        self._asked_at: float | None = None
        self._trouble = ""
        self._rank: int | None = None
        """The rank that the user has chosen; None for the one that matters."""
        self._shown = ("", 0)
        self._ask_now, self._read_now = asyncio.Event(), asyncio.Event()
        self._head, self._details = Static(id="head"), Static("asking Slurm", id="details")
        self._table = JobTable()
        self._progress = ProgressBar(id="progress", show_eta=False)
        self._loss, self._throughput = Curve("loss", "cyan"), Curve("samples/s", "green", from_zero=True)
        self._events, self._output = LogView("events"), LogView("output")

    def compose(self) -> ComposeResult:
        """Place the widgets from the top down; watch.tcss has their sizes."""
        yield from (self._head, self._table, self._details, self._progress)
        yield Container(self._loss, self._throughput, id="curves")
        yield Container(self._events, self._output, id="texts")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask Slurm and to read files."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.action_end, number)
        self._events.border_title = "events"
        self.set_interval(READ_S, self._show_head)
        self._poll()
        self._read_files()

    @property
    def _job(self) -> JobStatus | None:
        """The chosen job."""
        return next((job for job in self._jobs if job.job_id == self._table.chosen), None)

    @work
    async def _poll(self) -> None:
        while True:
            try:
                self._jobs = await sources.run_in_thread(sources.query, self._words, self._runs_dir, self._environ)
                self._asked_at = time.time()
                self._trouble = next((job.silence for job in self._jobs if job.silence), "")
                self._table.show(self._jobs)
                if not self._jobs:
                    self._details.update("no jobs yet")
                self._read_now.set()
            except (SlurmddpError, OSError) as error:
                self._trouble = str(error)
            self._show_head()
            await _wait(self._ask_now, sources.POLL_S)

    @work
    async def _read_files(self) -> None:
        while True:
            if job := self._job:
                rank = self._rank
                view = await sources.run_in_thread(sources.read_files, job, rank)
                if job == self._job and rank == self._rank:
                    self._show_files(job._replace(progress=view.progress), view)
            await _wait(self._read_now, READ_S)

    def _show_head(self) -> None:
        line = Text.assemble(("slurmddp watch", "bold"), f"  {time.strftime('%X')}")
        if self._trouble:
            line.append(f"  {escape_text(self._trouble)}", COLOURS["red"])
        elif self._asked_at:
            line.append(f"  Slurm's answer is {format_duration(time.time() - self._asked_at)} old")
        self._head.update(line, layout=False)

    def _show_files(self, job: JobStatus, view: RunView) -> None:
        """Show what a job's files say, which is newer than Slurm's answer."""
        restart, self._shown = self._shown != (job.job_id, view.rank), (job.job_id, view.rank)
        self._jobs = [job if one.job_id == job.job_id else one for one in self._jobs]
        self._table.show(self._jobs)
        details = format_details(job)
        if details != self._details.content:  # an update lays out the whole screen
            self._details.update(details)
        progress = view.progress or Progress()
        self._progress.set_class(not progress.total, "-endless")
        self._progress.update(total=progress.total, progress=progress.step or 0)
        self._loss.show(view.loss)
        self._throughput.show(view.rate)
        self._throughput.display = bool(view.rate)
        self._events.show([*map(format_event, view.events)], restart=restart)
        self._output.show([*map(Text, view.output or ("no output yet",))], restart=restart)
        self._output.border_title = Text(f"{job.job_id} {escape_text(job.name)}, rank {view.rank} and the batch script")

    def on_data_table_row_highlighted(self) -> None:
        """Read the files of the job that is chosen now."""
        if self._table.chosen != self._shown[0]:
            self._rank = None
            self._read_now.set()

    def action_change_rank(self, by: int) -> None:
        """Show the output of another rank."""
        self._rank = max(0, (self._shown[1] if self._rank is None else self._rank) + by)
        self._read_now.set()

    def action_toggle_output(self) -> None:
        """Show the output on the whole screen, or all again."""
        is_whole = self.screen.toggle_class("-output").has_class("-output")
        (self._output if is_whole else self._table).focus()

    def action_show_jobs(self) -> None:
        """Go back from the output to all."""
        self.screen.remove_class("-output")
        self._table.focus()

    def action_toggle_keys(self) -> None:
        """Show all keys beside the rest, or no longer."""
        if self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def action_ask_slurm(self) -> None:
        """Ask Slurm now."""
        self._ask_now.set()

    def action_end(self, number: int) -> None:
        """End as a program ends by this signal."""
        self.exit(return_code=128 + number)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event, or for the time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)
    event.clear()
