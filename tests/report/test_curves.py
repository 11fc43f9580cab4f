"""Curves of what was logged; of millions nothing that can be seen is lost, and all are counted."""

import json
import math
from itertools import pairwise

import pytest
from timelines import build

from slurmddp.report import curves
from slurmddp.report.curves import (
    MOST_ODD,
    RATE,
    ValueCount,
    build_checkpoint_curves,
    build_metric_curves,
    downsample_events,
    logged_values,
)
from slurmddp.runs.history import History
from slurmddp.runs.layout import RunDir


def attempts(story):
    return build(History(downsample_events(story.history.events, 1)[0]), now=999).attempts


def test_every_name_has_a_line_an_attempt_and_loss_comes_first(story):
    story.at(1, "metrics", step=1, values={"zeta": 1, "loss": 2.5, "samples_per_s": 90, "alpha": None})
    story.on("7", "0.1").at(5, "metrics", step=1, values={"loss": 2.25}).at(6, "metrics", step=3, values={"loss": 2})
    found = build_metric_curves(attempts(story), {})
    assert list(found) == ["loss", "samples_per_s", "steps/s", "zeta"]
    assert [(line.label, line.points) for line in found["loss"]] == [
        ("7 0.0", ((1, 2.5),)),
        ("7 0.1", ((1, 2.25), (3, 2.0))),
    ]
    assert [line.points for line in found["steps/s"]] == [((3, 2.0),)]


def test_what_is_no_number_is_marked_and_counted(story):
    for step, value in enumerate(["nan", 1.0, "inf", "-inf", "seven", [2]]):
        story.at(step, "metrics", step=step, values={"loss": value})
    line = build_metric_curves(attempts(story), {})["loss"][0]
    assert line.points == ((1, 1.0),) and (line.count, line.odd_count) == (4, 3)
    assert [(step, str(value)) for step, value in line.odd] == [(0, "nan"), (2, "inf"), (3, "-inf")]
    assert math.isnan(line.first) and (line.least, line.most) == (1.0, 1.0)


def test_many_strange_values_are_thinned_too(story):
    for step in range(20_000):
        story.at(step, "metrics", step=step, values={"loss": "nan"})
    line = build_metric_curves(attempts(story), {})["loss"][0]
    assert line.points == () and line.odd_count == 20_000 and len(line.odd) <= MOST_ODD
    assert (line.least, line.most) == (None, None)


def test_checkpoints_have_their_times(story):
    story.save(5, 10, held_s=0.5, write_s=2).save(9, 20, held_s=0.25)
    found = build_checkpoint_curves(attempts(story))
    assert list(found) == [curves.HELD, curves.WRITE]
    assert found[curves.HELD][0].points == ((10, 0.5), (20, 0.25))
    assert found[curves.WRITE][0].points == ((10, 2.0), (20, 0.0))


def test_nothing_logged_is_no_curve(story):
    story.at(1, "start").at(2, "metrics", step=1, values="torn")
    assert build_metric_curves(attempts(story), {}) == {} == build_checkpoint_curves(attempts(story))


def records(count, attempt="0.0", **peaks):
    for at in range(count):
        values = {"loss": peaks.get(f"at{at}", 1.0 + at % 7 / 10), "lr": 0.1}
        time = at * 2.0 + (1.9 if at == 500 else 0)
        yield {
            "time": time, "event": "metrics", "job": "7", "attempt": attempt, "rank": 0, "host": "n1",
            "step": at * 10, "values": values,
        }  # fmt: skip


def rates(events):
    return [(event.count("step"), values[RATE]) for event in events if RATE in (values := event.fields["values"])]


@pytest.fixture
def sample(tmp_path):
    def read(records):
        run = RunDir(tmp_path)
        run.events.write_text("".join(json.dumps(record) + "\n" for record in records))
        return curves.read_events(run)

    return read


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(curves, "MOST_METRICS", 400)


def test_few_metrics_are_all_held(sample):
    events, counts = sample(records(1000))
    assert len(events) == 1000
    assert counts == {("7", "0.0"): {"loss": ValueCount(1000, 0), "lr": ValueCount(1000, 0), RATE: ValueCount(999, 0)}}


@pytest.mark.usefixtures("few")
def test_of_many_the_peaks_the_ends_and_the_counts_stay(sample):
    events, counts = sample(records(20_000, at777=99.0, at12345=-5.0, at15000="nan"))
    assert len(events) <= 400
    values = [event.fields["values"]["loss"] for event in events]
    assert {99.0, -5.0, "nan"} <= set(values)
    assert (events[0].count("step"), events[-1].count("step")) == (0, 199_990)
    assert counts["7", "0.0"]["loss"] == ValueCount(20_000, 1)
    steps = [event.count("step") for event in events]
    assert steps == sorted(steps)
    assert max(after - before for before, after in pairwise(steps)) < 20_000


@pytest.mark.usefixtures("few")
def test_the_slowest_and_the_fastest_steps_stay(sample):
    found = [rate for _, rate in rates(sample(records(20_000))[0])]
    assert (min(found), max(found)) == (pytest.approx(10 / 3.9), pytest.approx(10 / 0.1))


def test_the_pace_is_that_between_two_lines_of_numbers(story):
    story.at(5, "metrics", step=10, values={}).save(5.001, 11).at(7, "metrics", step=14, values="torn")
    story.at(7, "metrics", step=15, values={}).at(8, "metrics", step=15, values={})
    metrics = downsample_events(story.events, 1)[0][1:]
    assert [(event.count("step"), dict(logged_values(event))) for event in metrics] == [
        (10, {}),
        (14, {RATE: 2.0}),
        (15, {}),
        (15, {}),
    ]


@pytest.mark.usefixtures("few")
def test_each_attempt_is_thinned_and_other_events_are_all_held(sample):
    start = {"time": 0.0, "event": "start", "job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}
    many = [record for attempt in ("0.0", "1.0", "2.0") for record in records(5000, attempt)]
    events, _ = sample([start, *many, {"time": math.nan, "event": "metrics"}, *[start] * 500])
    assert sum(event.kind == "start" for event in events) == 501
    assert {event.attempt for event in events} == {"0.0", "1.0", "2.0"}
    assert len(events) < 501 + 600
