"""What is said of sizes that were not measured."""

import pytest

from slurmddp.scaling.measurements import Point
from slurmddp.scaling.prediction import outlook


def points(*sizes, node=8):
    known = [max(1, gpus // node) if node else None for gpus in sizes]
    times = [((0.1 + 1 / gpus,),) for gpus in sizes]
    return [
        Point(gpus=gpus, nodes=nodes, repeats_s=time) for gpus, nodes, time in zip(sizes, known, times, strict=True)
    ]


def test_without_a_wish_it_looks_up_to_64_times_as_far():
    ahead = outlook(points(1, 2, 4, 8, 16, 32), "strong", node_size=8)
    assert [one.gpus for one in ahead.predicted] == [64, 128, 256, 512, 1024, 2048] and ahead.silence == ""


def test_it_says_why_it_is_silent():
    ahead = outlook(points(1, 2), "strong", node_size=8)
    assert ahead.law is None and ahead.line == () and "2 sizes measured, which gives no law" in ahead.silence


def test_it_predicts_what_it_can_and_says_what_it_cannot():
    ahead = outlook(points(1, 2, 4, 8), "strong", node_size=8, sizes=[6, 64])
    assert [one.gpus for one in ahead.predicted] == [6] and "64 GPUs need several nodes of 8" in ahead.silence


@pytest.mark.parametrize("sizes", [[1, 2, 4, 8], [1, 3, 5, 7]])
def test_the_line_goes_through_all_sizes_in_order(sizes):
    ahead = outlook(points(*sizes, node=None), "strong", node_size=None, sizes=[100])
    drawn = [one.gpus for one in ahead.line]
    assert drawn == sorted(set(drawn)) and {*sizes, 100} <= set(drawn) and drawn[-1] == 100


def test_the_line_takes_sizes_that_fill_nodes():
    ahead = outlook(points(1, 2, 4, 8, 16, 32), "strong", node_size=8, sizes=[256])
    drawn = [one.gpus for one in ahead.line]
    assert all(gpus <= 8 or gpus % 8 == 0 for gpus in drawn) and 6 in drawn and 24 in drawn


def test_a_line_to_a_far_size_has_few_points():
    ahead = outlook(points(1, 2, 4, 8, node=None), "strong", node_size=None, sizes=[999_999])
    assert len(ahead.line) < 200
