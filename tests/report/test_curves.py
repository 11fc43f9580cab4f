"""Curves of what was logged; of millions nothing that can be seen is lost, and all are counted."""

import json
import math
from itertools import pairwise

import pytest
from timelines import build

from slurmddp.report import curves
from slurmddp.report.curves import RATE, build_metric_curves, thin_events
from slurmddp.runs.layout import RunDir


def span(line):
    values = [value for _, value in line.points]
    return min(values), max(values)


def attempts(story):
    return build(story.history, now=999).attempts


def metric_curves(story):
    return build_metric_curves(attempts(story), thin_events(story.events, 0)[1])


def test_every_name_has_a_line_an_attempt_and_loss_comes_first(story):
    story.at(1, "metrics", step=1, values={"zeta": 1, "loss": 2.5, "samples_per_s": 90, "alpha": None})
    story.on("7", "0.1").at(5, "metrics", step=1, values={"loss": 2.25}).at(6, "metrics", step=3, values={"loss": 2})
    found = metric_curves(story)
    assert list(found) == ["loss", "samples_per_s", "steps/s", "zeta"]
    assert [(line.label, line.points) for line in found["loss"]] == [
        ("7 0.0", [(1, 2.5)]),
        ("7 0.1", [(1, 2.25), (3, 2.0)]),
    ]
    assert [line.points for line in found["steps/s"]] == [[(3, 2.0)]]


def test_what_is_no_number_is_counted(story):
    for step, value in enumerate(["nan", 1.0, "inf", "-inf", "seven", [2]]):
        story.at(step, "metrics", step=step, values={"loss": value})
    line = metric_curves(story)["loss"][0]
    assert line.points == [(1, 1.0)] and (line.count, line.odd_count) == (4, 3)
    assert math.isnan(line.first)


def test_without_a_finite_value_there_is_no_point(story):
    for step in range(20):
        story.at(step, "metrics", step=step, values={"loss": "nan"})
    line = metric_curves(story)["loss"][0]
    assert line.points == [] and line.odd_count == 20


def test_nothing_logged_is_no_curve(story):
    story.at(1, "start").at(2, "metrics", step=1, values="torn")
    assert metric_curves(story) == {}


def records(count, attempt="0.0", **peaks):
    for at in range(count):
        values = {"loss": peaks.get(f"at{at}", 1.0 + at % 7 / 10), "lr": 0.1}
        time = at * 2.0 + (1.9 if at == 500 else 0)
        yield {
            "time": time, "event": "metrics", "job": "7", "attempt": attempt, "rank": 0, "host": "n1",
            "step": at * 10, "values": values,
        }  # fmt: skip


@pytest.fixture
def sample(tmp_path):
    def read(records):
        run = RunDir(tmp_path)
        run.events.write_text("".join(json.dumps(record) + "\n" for record in records))
        history, logged = curves.read_events(run)
        return history.events, logged

    return read


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(curves, "MOST_METRICS", 400)


def test_few_metrics_are_all_held(sample):
    events, logged = sample(records(1000))
    assert len(events) == 1000
    assert {name: (line.count, len(line.points)) for name, line in logged["7 0.0"].items()} == {
        "loss": (1000, 1000), "lr": (1000, 1000), RATE: (999, 999),
    }  # fmt: skip


@pytest.mark.usefixtures("few")
def test_of_many_the_peaks_the_ends_and_the_counts_stay(sample):
    events, logged = sample(records(20_000, at777=99.0, at12345=-5.0, at15000="nan"))
    loss = logged["7 0.0"]["loss"]
    assert len(events) <= 400 and len(loss.points) <= 400
    assert {(7770, 99.0), (123_450, -5.0)} <= set(loss.points) and span(loss) == (-5.0, 99.0)
    assert (loss.count, loss.odd_count) == (20_000, 1)
    for steps in ([step for step, _ in loss.points], [event.count("step") for event in events]):
        assert (steps[0], steps[-1]) == (0, 199_990)
        assert steps == sorted(steps)
        assert max(after - before for before, after in pairwise(steps)) < 20_000


@pytest.mark.usefixtures("few")
def test_the_slowest_and_the_fastest_steps_stay(sample):
    rate = sample(records(20_000))[1]["7 0.0"][RATE]
    assert span(rate) == (pytest.approx(10 / 3.9), pytest.approx(10 / 0.1))


def test_the_pace_is_that_between_two_lines_of_numbers(story):
    story.at(5, "metrics", step=10, values={}).save(5.001, 11).at(7, "metrics", step=14, values="torn")
    story.at(7, "metrics", step=15, values={}).at(8, "metrics", step=15, values={})
    events, logged = thin_events(story.events, 0)
    assert [event.count("step") for event in events[1:]] == [10, 14, 15, 15]
    assert logged["7 0.0"][RATE].points == [(14, 2.0)]


@pytest.mark.usefixtures("few")
def test_each_attempt_is_thinned_and_other_events_are_all_held(sample):
    start = {"time": 0.0, "event": "start", "job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}
    many = [record for attempt in ("0.0", "1.0", "2.0") for record in records(5000, attempt)]
    events, logged = sample([start, *many, {"time": math.nan, "event": "metrics"}, *[start] * 500])
    assert sum(event.kind == "start" for event in events) == 501
    assert {event.attempt for event in events} == {"0.0", "1.0", "2.0"}
    assert len(events) < 501 + 600
    assert list(logged) == ["7 0.0", "7 1.0", "7 2.0"]
    assert all(len(line.points) < 200 for lines in logged.values() for line in lines.values())
