"""Predictions for sizes that were not measured."""

import pytest

from slurmddp.scaling.measurements import Point
from slurmddp.scaling.prediction import predict_sizes


def points(*sizes, node=8):
    known = [max(1, gpus // node) if node else None for gpus in sizes]
    times = [((0.1 + 1 / gpus,),) for gpus in sizes]
    return [
        Point(gpus=gpus, nodes=nodes, repeats_s=time) for gpus, nodes, time in zip(sizes, known, times, strict=True)
    ]


def test_by_default_sizes_up_to_64_times_the_largest_are_predicted():
    prediction = predict_sizes(points(1, 2, 4, 8, 16, 32), "strong", node_size=8)
    assert [one.gpus for one in prediction.predicted] == [64, 128, 256, 512, 1024, 2048] and prediction.silence == ""


def test_it_says_why_there_is_no_prediction():
    prediction = predict_sizes(points(1, 2), "strong", node_size=8)
    assert (prediction.law, prediction.curve) == (None, ())
    assert "2 sizes measured, too few for a law" in prediction.silence


def test_it_predicts_what_it_can_and_names_the_rest():
    prediction = predict_sizes(points(1, 2, 4, 8), "strong", node_size=8, sizes=[6, 64])
    assert [one.gpus for one in prediction.predicted] == [6] and "64 GPUs need several nodes of 8" in prediction.silence


@pytest.mark.parametrize("sizes", [[1, 2, 4, 8], [1, 3, 5, 7]])
def test_the_curve_goes_through_all_sizes_in_order(sizes):
    prediction = predict_sizes(points(*sizes, node=None), "strong", node_size=None, sizes=[100])
    drawn = [one.gpus for one in prediction.curve]
    assert drawn == sorted(set(drawn)) and {*sizes, 100} <= set(drawn) and drawn[-1] == 100


def test_the_curve_uses_sizes_that_fill_nodes():
    prediction = predict_sizes(points(1, 2, 4, 8, 16, 32), "strong", node_size=8, sizes=[256])
    drawn = [one.gpus for one in prediction.curve]
    assert all(gpus <= 8 or gpus % 8 == 0 for gpus in drawn) and 6 in drawn and 24 in drawn


def test_a_curve_to_a_large_size_has_few_points():
    prediction = predict_sizes(points(1, 2, 4, 8, node=None), "strong", node_size=None, sizes=[999_999])
    assert len(prediction.curve) < 200
