"""What the screen shows, and what keys do, by Textual's Pilot. Slurm is a stand-in; the files of the run are real."""

import asyncio
import math
import os
import time
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from rich.color import Color
from textual import events

from slurmddp.cli import status_format
from slurmddp.cli.watch import app as app_module
from slurmddp.cli.watch import sources
from slurmddp.cli.watch.app import WatchApp
from slurmddp.monitoring.status import JobStatus
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.states import outcome_of

NOW = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC
LIMIT_S = 60


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """It stays noon."""
    noon = SimpleNamespace(time=lambda: NOW, strftime=lambda _: "12:00:00")
    monkeypatch.setattr(app_module, "time", noon)
    monkeypatch.setattr(sources, "time", noon)
    monkeypatch.setattr(app_module, "READ_S", 0.2)
    now = datetime.fromtimestamp(NOW, UTC)
    monkeypatch.setattr(status_format, "datetime", Mock(wraps=datetime, now=Mock(return_value=now)))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run(tmp_path):
    """A run of 300 of 400 steps, with a checkpoint every 100 steps."""
    made = RunDir(tmp_path / "mnist")
    made.create()
    made.attempt("17", "1.0").mkdir(parents=True)
    record(made, NOW - 602, "start", world_size=4, nodes=2)
    for step in range(1, 301):
        values = {"loss": 2 / step, "samples_per_s": 5000 + step % 7}
        record(made, NOW - 600 + 2 * step, "metrics", step=step, total=400, values=values)
        if step % 100 == 0:
            record(made, NOW - 600 + 2 * step, "checkpoint", step=step)
    made.rank_log("17", "1.0", 0).write_text("".join(f"line {number}\n" for number in range(100)))
    return made


def record(run, at, kind, **fields):
    append_record(run.events, {"time": at, "event": kind, "job": "17", "attempt": "1.0", "rank": 0, **fields})


@pytest.fixture(autouse=True)
def slurm(run, monkeypatch):
    """A stand-in for Slurm, which has three jobs."""
    times = {"elapsed_s": 600, "limit_s": 3600}
    job = JobStatus(job_id="17", run=run, name="mnist", outcome=outcome_of("RUNNING"), nodes=("n1", "n2"), **times)
    waits = JobStatus(
        job_id="18", run=None, name="gpt", outcome=outcome_of("PENDING"), meaning="what it asks for is in use"
    )
    failed = JobStatus(job_id="19", run=None, name="old", outcome=outcome_of("FAILED"), meaning="rank 3: out of memory")
    made = SimpleNamespace(jobs=(job, waits, failed), error=None)

    def answer(*_):
        if made.error:
            raise made.error
        return made.jobs

    monkeypatch.setattr(sources, "query", answer)
    return made


class Screen:
    """The screen of a running app, as lines of text."""

    def __init__(self, app, pilot):
        self.app, self.pilot, self.press = app, pilot, pilot.press

    @property
    def lines(self):
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    async def until(self, *words, gone=()):
        """Wait until all the words are on the screen, and those in `gone` are not."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            text = "\n".join(self.lines)
            if all(word in text for word in words) and not any(word in text for word in gone):
                return
            assert time.monotonic() < deadline, f"{words} without {gone} is not what is shown:\n{text}"
            await self.pilot.pause(0.02)


def play(scenario, size=(80, 24)):
    """Run a scenario on a screen of this size."""

    async def run():
        app = WatchApp((), "jobs", os.environ)
        async with app.run_test(size=size, notifications=True) as pilot:
            await scenario(Screen(app, pilot))

    asyncio.run(run())


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_whole_screen(size):
    expected = Path(__file__).with_name(f"screen-{size[0]}x{size[1]}.txt").read_text().splitlines()

    async def scenario(screen):
        while screen.lines != expected:
            await screen.until(*expected, gone=["asking Slurm"])

    play(scenario, size)


def luminance(color):
    """Return the relative luminance of WCAG 2.2."""
    shares = [part / 255 for part in color.get_truecolor()]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(style):
    dark, light = sorted(luminance(color or Color.parse("#000000")) for color in (style.color, style.bgcolor))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1"}], ids=["colours", "NO_COLOR"])
def test_every_word_can_be_read_with_and_without_colours(slurm, monkeypatch, environ):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    first, waits, failed = slurm.jobs
    ended = failed._replace(job_id="20", outcome=outcome_of("CANCELLED"))
    slurm.jobs = (first, waits, failed, ended)

    def check(screen):
        parts = list(chain.from_iterable(screen.app.screen._compositor.render_strips()))
        dim = {part.text for part in parts if any(map(str.isalnum, part.text)) and contrast(part.style) < 4.5}
        assert not dim
        (word,) = [part for part in parts if "FAILED" in part.text]
        assert word.style.bold, "a word that stands out without a colour"

    async def scenario(screen):
        await screen.until("17 mnist, rank 0", "line 99")
        for job in ("18 gpt", "19 old", "20 old"):
            check(screen)
            await screen.press("down")
            await screen.until(f"{job}, rank 0")
        slurm.error = PermissionError(13, "Permission denied", "jobs")
        await screen.press("s")
        await screen.until("Permission denied")
        check(screen)
        await screen.press("question_mark")
        await screen.until("The job below")
        check(screen)

    play(scenario)


def test_the_rank_that_failed_or_hangs_is_shown_first(slurm, run):
    first, *others = slurm.jobs
    for rank in (1, 2, 3):
        run.rank_log("17", "1.0", rank).write_text(f"hello from rank {rank}\n")
    record(run, NOW, "hang", reason="rank 3 waits", stalled_s=60.0, hung_ranks=[3], hung_hosts=["n2"])

    async def scenario(screen):
        await screen.until("17 mnist, rank 3", "hello from rank 3", "HUNG", "hung: since 11:59:00: rank 3 waits")
        record(run, NOW, "hang_end")
        await screen.until("17 mnist, rank 0", "line 99", gone=["HUNG"])
        await screen.press("right")
        await screen.until("17 mnist, rank 1", "hello from rank 1")
        await screen.press("left")
        run.rank_record("17", "1.0", 2).write_text("77 rank 2 on n1: ValueError: boom\n")
        slurm.jobs = (first._replace(outcome=outcome_of("FAILED")), *others)
        await screen.press("down", "s", "up")
        await screen.until("17 mnist, rank 2", "hello from rank 2", "FAILED")

    play(scenario)


def test_what_is_too_long_for_the_screen_ends_in_an_ellipsis(slurm, run):
    first, waits, failed = slurm.jobs
    slurm.jobs = (first, waits._replace(meaning="w" * 100), failed)
    run.rank_log("17", "1.0", 0).write_text("x" * 200 + "\n" + "y" * 78 + "\n")

    async def scenario(screen):
        await screen.until("w...", "x…", "y" * 78)
        await screen.press("l", "shift+right", "shift+right")
        await screen.until(" xxx", "x…", " " + "y" * 76 + "\n")

    play(scenario)


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (1, 1), (300, 100)], ids=str)
def test_any_size_works_and_small_ones_leave_out_curves_first(size):
    async def scenario(screen):
        await screen.pilot.pause(0.3)
        assert len(screen.lines) == size[1] and max(map(len, screen.lines)) <= size[0]
        if size == (40, 10):
            await screen.until("mnist", "75%", "line 99", "q Quit", "? Help", gone=["loss"])

    play(scenario, size)


def test_the_cursor_chooses_a_job_and_stays_with_it(slurm):
    async def scenario(screen):
        await screen.until("17 mnist, rank 0", "line 99")
        await screen.press("down")
        await screen.until("18 gpt, rank 0", "no output yet", gone=["75%"])
        slurm.jobs = slurm.jobs[::-1]
        await screen.press("s")
        await screen.pilot.pause(0.2)
        assert screen.app._table.chosen == "18" and screen.app._table.cursor_row == 1
        await screen.press("j")
        await screen.until("17 mnist, rank 0", "line 99", "75%")

    play(scenario)


def test_when_the_chosen_job_vanishes_its_neighbour_is_chosen(slurm):
    async def scenario(screen):
        await screen.until("17 mnist, rank 0")
        await screen.press("down", "down")
        await screen.until("19 old, rank 0")
        slurm.jobs = slurm.jobs[:2]
        await screen.press("s")
        await screen.until("18 gpt, rank 0", gone=["FAILED"])
        slurm.jobs = ()
        await screen.press("s")
        await screen.until("no jobs yet", gone=["gpt  "])

    play(scenario)


def test_the_files_are_newer_than_slurms_answer(run):
    async def scenario(screen):
        await screen.until("300/400")
        record(run, NOW, "metrics", step=320, total=400, values={"loss": 0.001})
        record(run, NOW, "straggler", slow_rank=3, slow_host="n2")
        await screen.until("320/400", "80%", "rank 3 on n2 is slow")

    play(scenario)


def test_a_slurm_that_does_not_answer_is_shown_until_it_does(slurm):
    async def scenario(screen):
        await screen.until("Slurm's answer is 0s old")
        slurm.jobs = tuple(job._replace(silence="squeue did not end within 20 s") for job in slurm.jobs)
        await screen.press("s")
        await screen.until("squeue did not end within 20 s", "300/400")
        slurm.error = PermissionError(13, "Permission denied", "jobs")
        await screen.press("s")
        await screen.until("Permission denied", "300/400")
        slurm.error, slurm.jobs = None, tuple(job._replace(silence="") for job in slurm.jobs)
        await screen.press("s")
        await screen.until("Slurm's answer is 0s old", gone=["Permission denied", "squeue"])

    play(scenario)


def test_hostile_text_is_shown_as_it_is_and_never_interpreted(slurm, run):
    evil = "\x1b[2J[red]x[/red]"
    first, *others = slurm.jobs
    slurm.jobs = (
        first._replace(name=evil, outcome=outcome_of(evil), nodes=(evil,)),
        others[0]._replace(meaning=evil + "[/]"),
    )
    run.rank_log("17", "1.0", 0).write_text(f"log {evil}[/]\n")
    record(run, NOW, f"kind{evil}", reason=f"why {evil}[/]")

    async def scenario(screen):
        await screen.until("log [red]x[/red][/]", r"where: \x1b[2J[red]x[/red]", r"17 \x1b[2J[red]x[/red], rank 0")
        await screen.until(r"kind\x1b[2J[red]x[/red]: why \x1b[2J[red]x[/red]")
        await screen.press("down")
        await screen.until(r"\x1b[2J[red]x[/red][/]")
        assert "\x1b" not in "\n".join(screen.lines)

    play(scenario, (160, 45))


def test_keys_typed_at_once_take_effect_in_their_order():
    async def scenario(screen):
        await screen.until("mnist")
        for key in ("down", "j", "k"):
            screen.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await screen.until("18 gpt, rank 0")

    play(scenario)


def test_the_keys_of_the_part_in_use_are_shown_beside_it_and_work_meanwhile():
    async def scenario(screen):
        await screen.until("17 mnist, rank 0")
        await screen.press("question_mark")
        await screen.until("j The job below", "→ The next rank", "s Ask Slurm", "^c Quit")
        await screen.press("j", "l")
        await screen.until("18 gpt, rank 0", "j Scroll down", gone=["The job below"])
        await screen.press("h", "escape")
        await screen.until("18 gpt, rank 0", "loss", gone=["The job below", "Scroll down"])
        await screen.press("question_mark", "q")
        await screen.pilot.pause(0.2)
        assert not screen.app.is_running

    play(scenario, (120, 45))


def test_the_output_follows_its_end_unless_it_is_scrolled(run):
    log = run.rank_log("17", "1.0", 0)

    async def scenario(screen):
        await screen.until("line 99")
        await screen.press("l")
        await screen.until("line 80", gone=["RUN", "loss", "75%"])
        await screen.press("pageup")
        await screen.until("line 60", gone=["line 99"])
        log.write_text(log.read_text() + "new line\n")
        await screen.pilot.pause(0.3)
        await screen.until("line 60", gone=["new line"])
        await screen.press("end")
        await screen.until("new line")
        await screen.press("escape")
        await screen.until("RUN", "loss", "75%", "new line")
        for size in ((80, 40), (120, 50), (80, 24)):
            await screen.pilot.resize_terminal(*size)
            log.write_text(log.read_text() + f"of {size[1]} lines\n")
            await screen.until(f"of {size[1]} lines")

    play(scenario)


def test_left_and_right_choose_the_rank(run):
    run.rank_log("17", "1.0", 1).write_text("hello from rank 1\n")

    async def scenario(screen):
        await screen.until("line 99")
        await screen.press("right")
        await screen.until("17 mnist, rank 1", "hello from rank 1", gone=["line 99"])
        await screen.press("enter", "right")
        await screen.until("rank 2 has no output in attempt 1.0 of job 17; the last with output is 1")
        await screen.press("left", "left", "left")
        await screen.until("17 mnist, rank 0", "line 99")

    play(scenario)


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ([], "loss: no number yet"),
        ([math.nan, math.inf], "loss: no number yet, 2 not finite"),
        ([1.0, math.nan, 3.0], "loss 3, 1 to 3, 1 not finite"),
        ([-1.7e308, 1.7e308], "loss 1.7e+308, -1.7e+308 to 1.7e+308"),
        ([1e-300, 1e300], "loss 1e+300, 1e-300 to 1e+300"),
        ([10.0**-power for power in range(9)], "loss 1e-08, 1e-08 to 1"),
    ],
)
def test_any_numbers_can_be_drawn(run, values, title):
    run.events.unlink()
    for step, value in enumerate(values):
        record(run, NOW, "metrics", step=10**17 * step, values={"loss": value if math.isfinite(value) else str(value)})

    async def scenario(screen):
        await screen.until(f"{title}─")
        braille = sum("\u2800" < char < "\u2900" for char in "".join(screen.lines))
        assert (braille > 0) == any(map(math.isfinite, values))

    play(scenario)
