"""Speed-up, efficiency, spread and cost of measured times; times from a file, and the round trip of the own table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Point, Study, compare_sizes, format_csv, parse_csv


def point(gpus, time_s, **more):
    return Point(gpus=gpus, repeats_s=((time_s,),), **more)


MEASURED = [point(gpus, seconds, steps=1.0) for gpus, seconds in ((1, 564), (2, 332), (3, 249), (4, 214))]


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
    several = Point(gpus=1, repeats_s=((1.0, 1.0, 9.0), (3.0,), (2.0,)))
    assert (several.time_s, several.spread_s) == (2.0, (1.0, 3.0))


def test_the_spread_of_a_single_repeat_is_its_quartiles():
    assert Point(gpus=1, repeats_s=((1.0, 2.0, 3.0, 4.0, 5.0),)).spread_s == (2.0, 4.0)
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


def test_two_columns_are_enough_and_rows_of_a_size_are_repeats():
    points, scaling = parse_csv("gpus, seconds\n1, 10\n2, 6\n1, 12\n1, 11\n", "t.csv", None)
    assert scaling == "strong"
    assert [(point.gpus, point.time_s, point.spread_s) for point in points] == [(1, 11, (10, 12)), (2, 6, (6, 6))]


@pytest.mark.parametrize(("scaling", "samples"), [("weak", (64, 256)), ("strong", (64, 64)), ("weak", (None, None))])
def test_what_is_written_is_read_back(scaling, samples):
    found = compare_sizes(
        [
            Point(gpus=1, nodes=1, repeats_s=((0.25, 0.5, 0.75),), samples=samples[0], communication=0.0, steps=1000.0),
            Point(gpus=4, nodes=2, repeats_s=((0.75,), (1.25,)), samples=samples[1], communication=0.5, steps=250.0),
        ],
        scaling,
    )
    points, read = parse_csv(format_csv(found, scaling), "o.csv", None)
    assert read == scaling
    for before, after in zip(found, compare_sizes(points, scaling), strict=True):
        for name in ("speed_up", "efficiency", "samples_per_s", "training_s", "gpu_hours"):
            assert getattr(after, name) == pytest.approx(getattr(before, name)), name
        assert (after.point.nodes, after.point.communication) == (before.point.nodes, before.point.communication)


@pytest.mark.parametrize(
    ("text", "scaling", "said"),
    [
        ("", None, "t.csv: the first line is ''; it must name the columns gpus and seconds"),
        ("gpus,seconds\n", None, "the columns gpus and seconds, and each size needs a line"),
        ("gpus,time\n1,2\n", None, "the first line is 'gpus,time'; it must name the columns"),
        ("gpus;seconds\n1;2\n", None, "the first line is 'gpus;seconds', separated by ; where , is allowed; it must"),
        ("gpus,seconds\n1,2\n0,2\n", None, "line 3, column gpus: '0' is not a whole number, 1 or more"),
        (f"gpus,seconds\n{'9' * 400},2\n", None, "column gpus: .* is not a whole number"),
        ("gpus,seconds\n1000000,2\n", None, "column gpus: .* is not a whole number, 1 or more, 999999"),
        ("gpus,seconds\n1,1e-300\n", None, "column seconds: '1e-300' is not a number above 0"),
        ("gpus,seconds,communication\n1,1,55\n", None, "column communication: '55' is not a share, 0 to 1"),
        ("gpus,seconds,nodes\n2,1,8\n", None, "line 2: 8 nodes are more than 2 GPUs"),
        ("gpus,seconds\n1\n", None, "line 2, column seconds: '' is not a number"),
        ("gpus,seconds,scaling\n1,1,weird\n", None, "column scaling holds 'weird'; weak or strong"),
        ("gpus,seconds,scaling\n1,1,weak\n2,1,strong\n", None, "column scaling holds 'strong, weak'"),
        ("gpus,seconds,scaling\n1,1,weak\n", "strong", "column scaling says weak, and --strong was given"),
        (f'gpus,seconds\n1,"{"1" * 200_000}"\n', None, "t.csv: field larger than field limit"),
    ],
    ids=range(15),
)
def test_a_mistake_is_named_with_its_line(text, scaling, said):
    with pytest.raises(UsageError, match=said):
        parse_csv(text, "t.csv", scaling)
