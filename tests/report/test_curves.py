"""Curves: what was logged, with what is no number marked."""

import math

from timelines import build

from slurmddp.report import curves
from slurmddp.report.curves import MOST_ODD, build_checkpoint_curves, build_metric_curves
from slurmddp.report.downsample import downsample_events
from slurmddp.runs.history import History


def attempts(story):
    return build(History(downsample_events(story.history.events, 1).events), now=999).attempts


def test_every_name_has_a_line_an_attempt_and_loss_comes_first(story):
    story.at(1, "metrics", step=1, values={"zeta": 1, "loss": 2.5, "samples_per_s": 90, "alpha": None})
    story.on("7", "0.1").at(5, "metrics", step=1, values={"loss": 2.25}).at(6, "metrics", step=3, values={"loss": 2})
    found = build_metric_curves(attempts(story))
    assert list(found) == ["loss", "samples_per_s", "steps/s", "zeta"]
    assert [(line.label, line.points) for line in found["loss"]] == [
        ("7 0.0", ((1, 2.5),)),
        ("7 0.1", ((1, 2.25), (3, 2.0))),
    ]
    assert [line.points for line in found["steps/s"]] == [((3, 2.0),)]


def test_what_is_no_number_is_marked_and_counted(story):
    for step, value in enumerate(["nan", 1.0, "inf", "-inf", "seven", [2]]):
        story.at(step, "metrics", step=step, values={"loss": value})
    line = build_metric_curves(attempts(story))["loss"][0]
    assert line.points == ((1, 1.0),) and (line.count, line.odd_count) == (4, 3)
    assert [(step, str(value)) for step, value in line.odd] == [(0, "nan"), (2, "inf"), (3, "-inf")]
    assert math.isnan(line.first) and (line.least, line.most) == (1.0, 1.0)


def test_many_strange_values_are_thinned_too(story):
    for step in range(20_000):
        story.at(step, "metrics", step=step, values={"loss": "nan"})
    line = build_metric_curves(attempts(story))["loss"][0]
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
    assert build_metric_curves(attempts(story)) == {} == build_checkpoint_curves(attempts(story))
