"""Frames as text: the layout at 80 by 24, and any size and value."""

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.cli.watch.braille import draw_bar, draw_curve
from slurmddp.cli.watch.frame import draw
from slurmddp.cli.watch.view import View
from slurmddp.monitoring.status import JobStatus, Progress
from slurmddp.report.axis import Scale
from slurmddp.runs.history import Event

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


def event(kind: str, **fields) -> Event:
    return Event(NOW, kind, "17", "1.0", 0, "n1", fields)


RUNNING = JobStatus(
    job_id="17",
    run=None,
    name="mnist",
    state="RUNNING",
    elapsed_s=600,
    limit_s=3600,
    nodes=("n1", "n2"),
    progress=Progress(
        attempt="1.0",
        step=300,
        total=400,
        loss=0.125,
        samples_per_s=5000.0,
        left_s=65.0,
        checkpoint_step=280,
        checkpoint_age_s=12.0,
        requeues=((NOW, "preempted"),),
    ),
)
WAITING = JobStatus(
    job_id="18", run=None, name="gpt", state="PENDING", reason="Resources", meaning="what it asks for is in use"
)
VIEW = View(
    now=NOW,
    jobs=(RUNNING, WAITING),
    asked=NOW - 3,
    loss=tuple((step, 1 / (1 + step)) for step in range(101)),
    rate=tuple((step, 5000.0) for step in range(100)),
    events=(event("start", world_size=4, nodes=2), event("checkpoint", step=280)),
    output=tuple(f"line {number}" for number in range(50)),
)


def text(view: View, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain.rstrip() for line in draw(view, width, height)]


def stars(lines: list[str]) -> list[str]:
    """Return braille characters as two by four stars and blanks each."""
    bits = ((0, 3), (1, 4), (2, 5), (6, 7))
    codes = [[ord(char) - 0x2800 if char > "\u2800" else 0 for char in line] for line in lines]
    return [
        "".join("*" if code >> bit & 1 else " " for code in line for bit in pair) for line in codes for pair in bits
    ]


def curve(points, width: int, height: int) -> list[str]:
    scale = Scale.over([value for _, value in points if math.isfinite(value)])
    return draw_curve(points, scale, width, height)


def test_a_screen_of_80_by_24_shows_jobs_progress_curves_events_and_output():
    lines = text(VIEW)
    assert len(lines) == 24
    assert lines[0].startswith("slurmddp watch  ") and lines[0].endswith("Slurm's answer is 3s old")
    assert lines[1] == "▶       17 mnist                RUNNING    10m3s of 1h   75%"
    assert lines[2] == "        18 gpt                  PENDING"
    assert lines[3] == "─ 17 mnist ".ljust(80, "─")
    assert lines[4] == "on n1, n2"
    assert lines[5].startswith("step 300/400  ━") and lines[5].endswith(
        "loss 0.125  1m5s left  5000 samples/s  saved 12s ago"
    )
    assert lines[6] == "1 requeue; the last: preempted"
    assert lines[7].split("  ")[0] == "loss 0.0099, 0.0099 to 1, log"
    assert lines[7].endswith("samples/s 5e+03, 5e+03 to 5e+03")
    assert lines[13].endswith("start 1.0: 4 ranks on 2 node(s) finished the rendezvous")
    assert lines[14].endswith("checkpoint 1.0: checkpoint of step 280")
    assert lines[15].startswith("─ rank 0 and the batch script ─")
    assert lines[16:23] == [f"line {number}" for number in range(43, 50)]
    assert lines[23] == "↑↓ job  l output  c cancel  r requeue  s ask Slurm  h help  q quit"


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (event("attempt_end", status=76, reason="rank 3 failed: out of memory"), "rank 3 failed: out of memory"),
        (event("loop", step=5, total=10), "step 5"),
        (event("finding", what="the clocks differ"), "the clocks differ"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_an_event_without_a_description_shows_its_reason_or_its_step(shown, words):
    assert any(line.endswith(f"{shown.kind} 1.0: {words}") for line in text(replace(VIEW, events=(shown,))))


def test_a_small_screen_shows_the_job_its_progress_and_the_key_to_quit():
    lines = text(VIEW, 40, 10)
    assert len(lines) == 10 and max(map(len, lines)) <= 40
    assert lines[1].startswith("▶       17 mnist")
    assert lines[5].startswith("step 300/400")
    assert lines[8] == "line 49" and lines[9].endswith("h help  q quit")


@pytest.mark.parametrize("page", ["jobs", "output", "help"])
@given(width=st.integers(1, 200), height=st.integers(1, 60))
def test_a_frame_fits_any_screen(page, width, height):
    lines = draw(replace(VIEW, page=page), width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)


def test_a_loss_that_falls_by_decades_is_drawn_by_its_logarithm():
    falling = replace(VIEW, loss=tuple((step, 10.0 ** -(step / 25)) for step in range(100)), rate=())
    lines = text(falling)
    assert lines[7].endswith("to 1, log")
    places = [line.find("*") for line in stars(lines[8:13])]
    assert places == sorted(places) and places[0] == 0 and 140 < places[-1] < 160


def test_a_pending_job_shows_its_reason():
    assert "what it asks for is in use" in text(replace(VIEW, chosen=1))


def test_an_array_of_many_jobs_is_shown_around_the_chosen_one():
    jobs = tuple(replace(WAITING, job_id=str(number)) for number in range(100))
    lines = text(replace(VIEW, jobs=jobs, chosen=50))
    shown = [line for line in lines if "PENDING" in line]
    assert [line.split()[0] for line in shown] == ["48", "49", "▶", "51", "52"]
    assert shown[2].startswith("▶       50 ") and shown[-1].endswith("and 95 more")


def test_before_slurm_has_answered_and_without_jobs():
    assert text(View(now=NOW, asking=True))[1] == "asking Slurm"
    assert text(View(now=NOW, asked=NOW))[1] == "no jobs yet"


def test_a_question_or_message_replaces_the_keys():
    assert text(replace(VIEW, question="cancel job 17 (mnist)?"))[-1] == "cancel job 17 (mnist)? (y/n)"
    assert text(replace(VIEW, message="job 17 is cancelled"))[-1] == "job 17 is cancelled"


def test_a_missing_answer_of_slurm_is_shown_in_the_header():
    silent = replace(RUNNING, silence="squeue did not end within 20 s")
    assert text(replace(VIEW, jobs=(silent,)))[0].endswith("squeue did not end within 20 s")


def test_control_characters_from_the_cluster_are_escaped():
    evil = replace(RUNNING, name="a\x1b[2J", meaning="b\x1b]0;x\x07", nodes=("n\x1b[1m",))
    view = replace(VIEW, jobs=(evil,), events=(event("notice", reason="\x1b[2J"),), message="\x1b[2J")
    view = replace(view, events=(*view.events, event("no\x1b[2Jtice")))
    assert "\x1b" not in "".join(text(view)) and "\x07" not in "".join(text(view))


def test_the_output_page_shows_rank_and_scroll_position():
    lines = text(replace(VIEW, page="output", rank=3, back=20))
    assert lines[1].startswith("─ 17 mnist, rank 3 and the batch script, 20 lines back ─")
    assert lines[22] == "line 49"


def test_a_rising_line_rises():
    rising = [(step, float(step)) for step in range(4)]
    assert stars(curve(rising, 2, 1)) == ["   *", "  * ", " *  ", "*   "]
    assert curve(rising, 2, 1) == ["⡠⠊"]
    assert stars(curve([(0, 0.0), (1, 3.0)], 1, 1)) == [" *", " *", " *", "* "]
    assert curve([(0, 5.0)], 1, 1) == ["⠂"]


def test_points_that_share_a_column_are_drawn_by_their_median():
    points = [(0, 0.0), (1, 0.0), (98, 1.0), (99, 6.0), (100, 6.0)]
    assert stars(curve(points, 1, 1)) == [" *", " *", " *", "* "]


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf], [1.0, math.nan, 1.0]])
def test_values_that_are_not_finite_are_left_out(values):
    lines = curve(list(enumerate(values)), 3, 2)
    assert [len(line) for line in lines] == [3, 3]
    assert ("*" in "".join(stars(lines))) == any(map(math.isfinite, values))


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats()), max_size=50), st.integers(1, 60), st.integers(1, 9))
def test_any_numbers_can_be_drawn(points, width, height):
    lines = curve(sorted(points, key=lambda point: point[0]), width, height)
    assert [len(line) for line in lines] == [width] * height


@pytest.mark.parametrize(("part", "drawn"), [(0, "╌╌╌╌"), (0.5, "━━╌╌"), (1, "━━━━"), (7, "━━━━"), (-1, "╌╌╌╌")])
def test_a_bar_is_filled_by_its_share(part, drawn):
    assert draw_bar(part, 4) == drawn
