"""Times from a file, and the round trip of a study's own table."""

import pytest

from slurmddp.errors import UsageError
from slurmddp.scaling import measurements
from slurmddp.scaling.measurements import Point, compare_sizes


def test_two_columns_are_enough_and_rows_of_a_size_are_repeats():
    points, scaling = measurements.parse_csv("gpus, seconds\n1, 10\n2, 6\n1, 12\n1, 11\n", "t.csv", None)
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
    points, read = measurements.parse_csv(measurements.format_csv(found, scaling), "o.csv", None)
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
        ("gpus,seconds\n1.5,2\n", None, "line 2, column gpus: '1.5' is not"),
        (f"gpus,seconds\n{'9' * 400},2\n", None, "column gpus: .* is not a whole number"),
        ("gpus,seconds\n1000000,2\n", None, "column gpus: .* is not a whole number, 1 or more, 999999"),
        ("gpus,seconds\n1,1e-300\n", None, "column seconds: '1e-300' is not a number above 0"),
        ("gpus,seconds,communication\n1,1,55\n", None, "column communication: '55' is not a share, 0 to 1"),
        ("gpus,seconds,nodes\n2,1,8\n", None, "line 2: 8 nodes are more than 2 GPUs"),
        ("gpus,seconds\n1,nan\n", None, "column seconds: 'nan' is not a number above 0"),
        ("gpus,seconds\n1,-1\n", None, "column seconds: '-1' is not"),
        ("gpus,seconds\n1\n", None, "line 2, column seconds: '' is not a number"),
        ("gpus,seconds,nodes\n1,1,x\n", None, "column nodes: 'x' is not a whole number"),
        ("gpus,seconds,scaling\n1,1,weird\n", None, "column scaling holds 'weird'; weak or strong"),
        ("gpus,seconds,scaling\n1,1,weak\n2,1,strong\n", None, "column scaling holds 'strong, weak'"),
        ("gpus,seconds,scaling\n1,1,weak\n", "strong", "column scaling says weak, and --strong was given"),
        (f'gpus,seconds\n1,"{"1" * 200_000}"\n', None, "t.csv: field larger than field limit"),
    ],
    ids=range(19),
)
def test_a_mistake_is_named_with_its_line(text, scaling, said):
    with pytest.raises(UsageError, match=said):
        measurements.parse_csv(text, "t.csv", scaling)
