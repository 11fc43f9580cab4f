"""Speed-up, efficiency, spread and cost of measured times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Point, Study, compare_sizes


def point(gpus, time_s, **more):
    return Point(gpus=gpus, nodes=1, repeats_s=((time_s,),), **more)


MEASURED = [point(gpus, seconds, steps=1) for gpus, seconds in ((1, 564), (2, 332), (3, 249), (4, 214))]


def test_weak_scaling_compares_throughput():
    """Steps of the same length on four times the GPUs do four times the work."""
    found = compare_sizes([point(1, 0.1, samples=32), point(4, 0.125, samples=128)], "weak")
    assert found[1].speed_up == pytest.approx(3.2) and found[1].efficiency == pytest.approx(0.8)
    assert found[1].samples_per_s == pytest.approx(1024)


def test_the_speed_up_of_the_smallest_size_is_its_number_of_gpus():
    eight, sixteen = compare_sizes([point(16, 60.0), point(8, 100.0)], "strong")
    assert (eight.speed_up, eight.efficiency) == (8, 1)
    assert sixteen.speed_up == pytest.approx(8 * 100 / 60)


@settings(deadline=None)  # the machine may be busy
@given(
    st.dictionaries(st.integers(1, 4096), st.floats(1e-3, 1e3), min_size=1, max_size=8),
    st.sampled_from(["weak", "strong"]),
)
def test_columns_are_consistent(times, scaling):
    found = compare_sizes([point(*pair) for pair in times.items()], scaling)
    base = found[0]
    assert [one.point.gpus for one in found] == sorted(times)
    for one in found:
        work = one.point.gpus / base.point.gpus if scaling == "weak" else 1
        assert one.speed_up == pytest.approx(base.point.gpus * work * base.point.time_s / one.point.time_s)
        assert one.efficiency == pytest.approx(one.speed_up / one.point.gpus)


def test_the_time_is_the_median_of_medians_and_the_spread_their_range():
    several = Point(gpus=1, nodes=1, repeats_s=((1.0, 1.0, 9.0), (3.0,), (2.0,)))
    assert (several.time_s, several.spread_s) == (2.0, (1.0, 3.0))


def test_the_spread_of_a_single_repeat_is_its_quartiles():
    assert Point(gpus=1, nodes=1, repeats_s=((1.0, 2.0, 3.0, 4.0, 5.0),)).spread_s == (2.0, 4.0)
    assert point(1, 2.0).spread_s == (2.0, 2.0)


def test_what_is_unknown_stays_unknown():
    for one in compare_sizes([point(1, 2.0), point(2, 2.1)], "weak"):
        assert (one.samples_per_s, one.training_s, one.gpu_hours) == (None, None, None)


@pytest.mark.parametrize(
    ("points", "scaling", "said"),
    [
        (
            [point(1, 1.0, samples=64), point(2, 1.0, samples=128)],
            "strong",
            "--strong: a step took 64 samples on 1 GPU",
        ),
        ([point(1, 1.0, samples=64), point(2, 1.0, samples=64)], "weak", "--weak: a step took 64 samples on 1 GPU"),
    ],
)
def test_incomparable_points_are_refused(points, scaling, said):
    with pytest.raises(UsageError, match=said):
        compare_sizes(points, scaling)


def study(least):
    results = compare_sizes(MEASURED, "strong")
    return Study(name="t", scaling="strong", results=results, min_efficiency=least)


@pytest.mark.parametrize(("least", "gpus"), [(0.8, 2), (0.5, 4), (0.7, 3), (1.0, 1)])
def test_the_largest_efficient_size_is_recommended(least, gpus):
    assert study(least).recommended.point.gpus == gpus
