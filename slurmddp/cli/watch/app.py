"""The screen of `slurmddp watch`: jobs in a table; details, curves, events and output of the chosen one."""

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import DataTable, Footer, ProgressBar, Static

from slurmddp.cli.watch import sources
from slurmddp.cli.watch.job_text import HEAD, format_details, format_event, format_row
from slurmddp.cli.watch.sources import RunView
from slurmddp.cli.watch.widgets import KEYS, Curve, KeyDialog, LogView
from slurmddp.errors import SlurmddpError
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.text import escape_text, format_duration

READ_S: Final = 1.0
"""Seconds between two reads of the files."""
_MESSAGE_S: Final = 8.0


class JobTable(DataTable[Text]):
    """One row for each job; the cursor chooses one, and stays with it when others come or go."""

    # The cursor has priority, as the keys have that act on the chosen job: else these overtake it.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", show=False, priority=True),
        Binding("down,j", "cursor_down", show=False, priority=True),
        ("left", "app.change_rank(-1)"),
        ("right", "app.change_rank(1)"),
        ("enter", "app.toggle_output"),
    ]

    def show(self, jobs: Sequence[JobStatus], since_s: float) -> None:
        """Show the jobs of an answer that is `since_s` seconds old."""
        row, ids, chosen = self.cursor_row, [job.job_id for job in jobs], self.chosen
        self.clear()
        for job in jobs:
            self.add_row(*format_row(job, since_s), key=job.job_id)
        self.move_cursor(row=ids.index(chosen) if chosen in ids else min(row, len(ids) - 1))

    @property
    def chosen(self) -> str:
        """The id of the chosen job; empty without jobs."""
        return str(self.ordered_rows[self.cursor_row].key.value) if self.row_count else ""


class WatchApp(App[None]):
    """Shows jobs until the user quits or a signal comes, which is then in `return_code`."""

    TITLE = "slurmddp watch"
    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-normal"), (120, "-wide")]  # noqa: RUF012 as Textual declares it
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-middle"), (36, "-high")]  # noqa: RUF012 the same
    # What opens a box has priority: the keys that follow then wait until the box takes them.
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("question_mark,h", "show_keys", "Help"),
        ("l", "toggle_output", "Output"),
        Binding("c", "change('cancel')", "Cancel", priority=True),
        Binding("r", "change('requeue')", "Requeue", priority=True),
        ("s", "ask_slurm", "Ask Slurm"),
        ("escape", "show_jobs"),
        Binding("ctrl+c", f"end({signal.SIGINT:d})", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(self, words: Sequence[str], runs_dir: str, environ: sources.Environ) -> None:
        super().__init__()
        self._words, self._runs_dir, self._environ = words, runs_dir, environ
        self._jobs: Sequence[JobStatus] = ()
        self._asked_at: float | None = None
        self._asking, self._trouble = False, ""
        self._rank = 0
        self._shown = ("", 0)
        self._ask_now, self._read_now = asyncio.Event(), asyncio.Event()
        self._head, self._details = Static(id="head"), Static("asking Slurm", id="details")
        self._table = JobTable(id="jobs", cursor_type="row")
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
        for title in HEAD:
            self._table.add_column(title, key=title)
        self._events.border_title = "events"
        self.set_interval(READ_S, self._show_head)
        self._poll()
        self._read_files()

    @property
    def _job(self) -> JobStatus | None:
        """The chosen job."""
        return next((job for job in self._jobs if job.job_id == self._table.chosen), None)

    @property
    def _since_s(self) -> float:
        """The age of Slurm's answer, in seconds."""
        return time.time() - self._asked_at if self._asked_at else 0.0

    @work
    async def _poll(self) -> None:
        while True:
            self._asking = True
            self._show_head()
            try:
                self._jobs = await sources.run_in_thread(
                    lambda: sources.query(self._words, self._runs_dir, self._environ)
                )
                self._asked_at = time.time()
                self._trouble = next((job.silence for job in self._jobs if job.silence), "")
                self._table.show(self._jobs, self._since_s)
                if not self._jobs:
                    self._details.update("no jobs yet")
                self._read_now.set()
            except (SlurmddpError, OSError) as error:
                self._trouble = str(error)
            self._asking = False
            self._show_head()
            await _wait(self._ask_now, sources.POLL_S)

    @work
    async def _read_files(self) -> None:
        while True:
            if job := self._job:
                rank = self._rank
                view = await sources.run_in_thread(lambda: sources.read_files(job, rank))  # noqa: B023 it is awaited here
                if job == self._job and rank == self._rank:
                    self._show_files(replace(job, progress=view.progress), view)
            await _wait(self._read_now, READ_S)

    def _show_head(self) -> None:
        line = Text.assemble(("slurmddp watch", "bold"), f"  {time.strftime('%X')}")
        if self._trouble:
            line.append(f"  {escape_text(self._trouble)}", "red")
        elif self._asked_at:
            line.append(f"  Slurm's answer is {format_duration(self._since_s)} old", "dim")
        if self._asking:
            line.append("  asking Slurm", "dim")
        self._head.update(line, layout=False)

    def _show_files(self, job: JobStatus, view: RunView) -> None:
        """Show what a job's files say, which is newer than Slurm's answer."""
        restart, self._shown = self._shown != (job.job_id, self._rank), (job.job_id, self._rank)
        for title, cell in zip(HEAD, format_row(job, self._since_s), strict=True):
            if cell != self._table.get_cell(job.job_id, title):
                self._table.update_cell(job.job_id, title, cell, update_width=True)
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
        self._output.border_title = Text(
            f"{job.job_id} {escape_text(job.name)}, rank {self._rank} and the batch script"
        )

    def on_data_table_row_highlighted(self) -> None:
        """Read the files of the job that is chosen now."""
        if self._table.chosen != self._shown[0]:
            self._rank = 0
            self._read_now.set()

    def action_change_rank(self, by: int) -> None:
        """Show the output of another rank."""
        self._rank = max(0, self._rank + by)
        self._read_now.set()

    def action_toggle_output(self) -> None:
        """Show the output on the whole screen, or all again."""
        is_whole = self.screen.toggle_class("-output").has_class("-output")
        (self._output if is_whole else self._table).focus()

    def action_show_jobs(self) -> None:
        """Go back from the output to all."""
        self.screen.remove_class("-output")
        self._table.focus()

    def action_show_keys(self) -> None:
        """Show all keys."""
        self.push_screen(KeyDialog(KEYS))

    def action_ask_slurm(self) -> None:
        """Ask Slurm now."""
        self._ask_now.set()

    async def action_change(self, verb: sources.Verb) -> None:
        """Cancel or requeue the chosen job, after confirmation."""
        job = self._job
        if job is None or job.phase not in ("queued", "running"):
            self._say(f"job {job.job_id} is {job.state}: there is nothing to {verb}" if job else "there is no job")
            return
        question = f"{verb} job {job.job_id} ({escape_text(job.name)})?\n\ny: yes    any other key: no"

        def begin(confirmed: bool | None) -> None:  # noqa: FBT001 - as Textual calls it
            if confirmed:
                self._change(verb, job)
            else:
                self._say("not confirmed; nothing was done")

        await self.push_screen(KeyDialog(question), begin)

    @work
    async def _change(self, verb: sources.Verb, job: JobStatus) -> None:
        try:
            self._say(await sources.run_in_thread(lambda: sources.change_job(verb, job, self._environ, self._say)))
        except (SlurmddpError, OSError) as error:
            self._say(str(error))
        self._ask_now.set()

    def _say(self, message: str) -> None:
        """Show a message for some seconds; may be called from any thread."""
        self.notify(escape_text(message), markup=False, timeout=_MESSAGE_S)

    def action_end(self, number: int) -> None:
        """End as a program ends by this signal."""
        self.exit(return_code=128 + number)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event, or for the time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)
    event.clear()
