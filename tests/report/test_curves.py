"""Curves: what was logged, thinned without hiding anything that can be seen."""

import math

from hypothesis import given
from hypothesis import strategies as st

from slurmddp.report import curves
from slurmddp.report.curves import MOST_POINTS, build_checkpoint_curves, build_metric_curves, downsample_points
from slurmddp.report.timeline import build_timeline

POINTS = st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e9, 1e9)), max_size=300)


def attempts(story):
    return build_timeline(story.history, now=999).attempts


@given(POINTS, st.integers(1, 20))
def test_thinned_points_keep_order_ends_and_every_buckets_range(points, buckets):
    found = downsample_points(points, buckets)
    assert len(points) > 4 * buckets or found == points
    left = iter(points)
    assert all(point in left for point in found)  # the same points, in the same order
    assert len(found) <= max(len(points), 4 * buckets) and (len(found) == len(points) or len(found) <= 4 * buckets)
    if points:
        assert (found[0], found[-1]) == (points[0], points[-1])
    for bucket in range(buckets) if len(found) < len(points) else ():
        part = [value for _, value in points[bucket * len(points) // buckets : (bucket + 1) * len(points) // buckets]]
        kept = [value for _, value in found]
        assert min(part) in kept and max(part) in kept


def test_a_single_peak_among_100000_points_is_seen(story):
    for step in range(100_000):
        value = 1e6 if step == 54_321 else (step * 7919 % 1009) / 1009
        story.at(step / 100, "metrics", step=step, total=100_000, values={"loss": value})
    (loss, rate) = build_metric_curves(attempts(story))
    (line,) = loss.lines
    assert (loss.name, rate.name) == ("loss", "steps/s")
    assert line.count == 100_000 and len(line.points) <= MOST_POINTS and (54_321, 1e6) in line.points
    assert (line.points[0][0], line.points[-1][0]) == (0, 99_999)


def test_every_name_has_a_line_an_attempt_and_loss_comes_first(story):
    story.at(1, "metrics", step=1, values={"zeta": 1, "loss": 2.5, "samples_per_s": 90, "alpha": None})
    story.on("7", "0.1").at(5, "metrics", step=1, values={"loss": 2.25}).at(6, "metrics", step=3, values={"loss": 2})
    found = {curve.name: curve for curve in build_metric_curves(attempts(story))}
    assert list(found) == ["loss", "samples_per_s", "steps/s", "zeta"]
    assert [(line.label, line.points) for line in found["loss"].lines] == [
        ("7 0.0", ((1, 2.5),)),
        ("7 0.1", ((1, 2.25), (3, 2.0))),
    ]
    assert [line.points for line in found["steps/s"].lines] == [((3, 2.0),)]


def test_what_is_no_number_is_marked_and_counted(story):
    for step, value in enumerate(["nan", 1.0, "inf", "-inf", "seven", [2]]):
        story.at(step, "metrics", step=step, values={"loss": value})
    line = build_metric_curves(attempts(story))[0].lines[0]
    assert line.points == ((1, 1.0),) and (line.count, line.odd_count) == (4, 3)
    assert [(step, str(value)) for step, value in line.odd] == [(0, "nan"), (2, "inf"), (3, "-inf")]
    assert math.isnan(line.first) and (line.least, line.most) == (1.0, 1.0)


def test_many_strange_values_are_thinned_too(story):
    for step in range(20_000):
        story.at(step, "metrics", step=step, values={"loss": "nan"})
    line = build_metric_curves(attempts(story))[0].lines[0]
    assert line.points == () and line.odd_count == 20_000 and len(line.odd) <= MOST_POINTS
    assert (line.least, line.most) == (None, None)


def test_checkpoints_have_their_times(story):
    story.save(5, 10, held_s=0.5, write_s=2).save(9, 20, held_s=0.25)
    held, write = build_checkpoint_curves(attempts(story))
    assert (held.name, held.lines[0].points) == (curves.HELD, ((10, 0.5), (20, 0.25)))
    assert (write.name, write.lines[0].points) == (curves.WRITE, ((10, 2.0), (20, 0.0)))


def test_nothing_logged_is_no_curve(story):
    story.at(1, "start").at(2, "metrics", step=1, values="torn")
    assert build_metric_curves(attempts(story)) == [] == build_checkpoint_curves(attempts(story))
