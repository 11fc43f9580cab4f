"""The fit recovers known laws, and its intervals cover them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp.scaling.fit import NoLawError, fit, predict_sizes, solve_nonnegative
from slurmddp.scaling.measurements import Point

NODE = 8


def law_of(scaling, serial, compute, volume, latency, between=0.0, node=None):
    """Return the documented law as a function of the number of GPUs."""

    def time_s(gpus):
        own = serial + (compute if scaling == "weak" else compute / gpus)
        slow = between if node and gpus > node else 0.0
        return own + (volume + slow) * (gpus - 1) / gpus + latency * np.log2(gpus)

    return time_s


def measured(law, sizes, node=None, noise=None):
    return [
        Point(
            gpus=gpus,
            nodes=max(1, gpus // node) if node else None,
            repeats_s=((float(law(gpus)) * (1 + (noise() if noise else 0)),),),
        )
        for gpus in sizes
    ]


shares = st.floats(0, 0.3)
scalings = st.sampled_from(["weak", "strong"])


@settings(max_examples=30, deadline=None)
@given(scalings, st.floats(0.01, 10), shares, shares, st.floats(0, 0.05))
def test_a_known_law_is_recovered_at_64_times_the_largest_size(scaling, compute, serial, volume, latency):
    """The prediction is within 5 %, and its interval covers the law; four sizes determine it."""
    law = law_of(scaling, serial * compute, compute, volume * compute, latency * compute)
    found = fit(measured(law, (1, 2, 4, 8)), scaling).predict(64 * 8)
    assert found.time_s == pytest.approx(law(64 * 8), rel=0.05)
    assert found.low_s <= law(64 * 8) <= found.high_s


@settings(max_examples=15, deadline=None)
@given(scalings, shares, shares, st.floats(0, 0.05), st.floats(0, 0.5))
def test_links_between_nodes_are_a_part_of_the_law(scaling, serial, volume, latency, between):
    law = law_of(scaling, serial, 1.0, volume, latency, between, NODE)
    found = fit(measured(law, (1, 2, 4, 8, 16, 32), NODE), scaling, NODE).predict(64 * 32)
    assert found.time_s == pytest.approx(law(64 * 32), rel=0.05)
    assert found.low_s <= law(64 * 32) <= found.high_s


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_with_one_percent_noise_the_interval_covers_nine_laws_in_ten(scaling):
    random = np.random.default_rng(1)
    covered = []
    for _ in range(40):
        law = law_of(scaling, random.uniform(0, 0.1), random.uniform(0.5, 1), *random.uniform(0, (0.3, 0.03)))
        points = measured(law, (1, 2, 4, 8, 16), noise=lambda: 0.01 * random.standard_normal())
        found = fit(points, scaling).predict(64 * 16)
        covered.append(found.low_s <= law(64 * 16) <= found.high_s)
    assert np.mean(covered) >= 0.8


def test_the_same_points_give_the_same_interval():
    points = measured(law_of("strong", 0.1, 1.0, 0.2, 0.01), (1, 2, 4, 8, 16))
    assert fit(points, "strong").predict(128) == fit(points, "strong").predict(128)


def test_speed_up_and_efficiency_of_a_prediction_belong_to_its_time():
    points = measured(law_of("weak", 0.0, 1.0, 0.25, 0.0), (1, 2, 4, 8))
    found = fit(points, "weak").predict(64)
    assert found.speed_up == pytest.approx(64 / found.time_s)
    assert found.efficiency == pytest.approx(1 / found.time_s)
    assert found.low <= found.speed_up <= found.high


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_sizes_determine_no_law(count):
    points = measured(law_of("strong", 0.1, 1.0, 0.2, 0.0), (1, 2, 4)[:count])
    with pytest.raises(
        NoLawError, match=f"^{count} sizes? measured, too few for a law with 3 parameters: measure at least 4"
    ):
        fit(points, "strong")


def test_times_that_no_law_explains_are_refused():
    """Ranks share one CPU, so the time of a step is proportional to their number."""
    with pytest.raises(NoLawError, match="differ from the best law by .*%, so something other"):
        fit(measured(float, (1, 2, 4, 8, 16, 32)), "weak")


def test_several_nodes_need_one_size_more():
    points = measured(law_of("strong", 0.1, 1.0, 0.2, 0.0), (2, 4, 8, 16), NODE)
    with pytest.raises(NoLawError, match="with 4 parameters: measure at least 5"):
        fit(points, "strong", NODE)


def test_an_unmeasured_network_is_not_predicted():
    law = fit(measured(law_of("strong", 0.1, 1.0, 0.2, 0.0), (1, 2, 4, 8), NODE), "strong", NODE)
    assert law.predict(6).time_s > 0
    with pytest.raises(NoLawError, match="16 GPUs need several nodes of 8, .* measure 16, too"):
        law.predict(16)


def test_the_node_size_is_derived_from_the_points():
    law = law_of("weak", 0.0, 1.0, 0.1, 0.0, 0.5, NODE)
    found = fit(measured(law, (1, 2, 4, 8, 16, 32), NODE), "weak")
    assert found.node_size == NODE and found.predict(64).time_s == pytest.approx(law(64), rel=0.01)
    assert fit(measured(law, (1, 2, 4, 8)), "weak").node_size is None


def test_two_laws_that_are_the_same_function_predict_the_same():
    """1, 1/n and (n-1)/n are linearly dependent: these two laws are the same function of n."""
    first, second = law_of("strong", 0.3, 1.0, 0.0, 0.01), law_of("strong", 0.0, 1.3, 0.3, 0.01)
    sizes = (1, 2, 4, 8, 16)
    assert [first(size) for size in sizes] == pytest.approx([second(size) for size in sizes])
    found = [fit(measured(law, sizes), "strong").predict(1024).time_s for law in (first, second)]
    assert found == pytest.approx([first(1024)] * 2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 10), min_size=3, max_size=3), st.integers(0, 2**32 - 1))
def test_nonnegative_coefficients_are_recovered(wanted, seed):
    design = np.random.default_rng(seed).uniform(0.1, 1, (6, 3))
    found = solve_nonnegative(design, design @ np.array(wanted)[:, None])
    assert design @ found == pytest.approx(design @ np.array(wanted)[:, None], abs=1e-6)
    assert (found >= 0).all()


def test_the_best_fit_without_negative_coefficients_has_no_better_neighbour():
    random = np.random.default_rng(3)
    for _ in range(20):
        design, wanted = random.standard_normal((6, 4)), random.standard_normal((6, 1))
        found = solve_nonnegative(design, wanted)
        gradient = design.T @ (design @ found - wanted)
        assert (gradient >= -1e-9).all() and gradient[found > 0] == pytest.approx(0, abs=1e-9)


@pytest.mark.filterwarnings("error")
def test_one_degree_of_freedom_and_a_poor_fit_overflow_nothing():
    points = measured(lambda gpus: {1: 100, 2: 46, 4: 21.7, 8: 10}[gpus], (1, 2, 4, 8))
    found = fit(points, "strong").predict(512)
    assert 0 < found.low_s <= found.time_s <= found.high_s < np.inf


def points_of(*sizes, node=8):
    known = [max(1, gpus // node) if node else None for gpus in sizes]
    times = [((0.1 + 1 / gpus,),) for gpus in sizes]
    return [
        Point(gpus=gpus, nodes=nodes, repeats_s=time) for gpus, nodes, time in zip(sizes, known, times, strict=True)
    ]


def test_by_default_sizes_up_to_64_times_the_largest_are_predicted():
    prediction = predict_sizes(points_of(1, 2, 4, 8, 16, 32), "strong", node_size=8)
    assert [one.gpus for one in prediction.predicted] == [64, 128, 256, 512, 1024, 2048] and prediction.silence == ""


def test_it_says_why_there_is_no_prediction():
    prediction = predict_sizes(points_of(1, 2), "strong", node_size=8)
    assert (prediction.law, prediction.curve) == (None, ())
    assert "2 sizes measured, too few for a law" in prediction.silence


def test_it_predicts_what_it_can_and_names_the_rest():
    prediction = predict_sizes(points_of(1, 2, 4, 8), "strong", node_size=8, sizes=[6, 64])
    assert [one.gpus for one in prediction.predicted] == [6] and "64 GPUs need several nodes of 8" in prediction.silence


@pytest.mark.parametrize("sizes", [[1, 2, 4, 8], [1, 3, 5, 7]])
def test_the_curve_goes_through_all_sizes_in_order(sizes):
    prediction = predict_sizes(points_of(*sizes, node=None), "strong", node_size=None, sizes=[100])
    drawn = [one.gpus for one in prediction.curve]
    assert drawn == sorted(set(drawn)) and {*sizes, 100} <= set(drawn) and drawn[-1] == 100


def test_the_curve_uses_sizes_that_fill_nodes():
    prediction = predict_sizes(points_of(1, 2, 4, 8, 16, 32), "strong", node_size=8, sizes=[256])
    drawn = [one.gpus for one in prediction.curve]
    assert all(gpus <= 8 or gpus % 8 == 0 for gpus in drawn) and 6 in drawn and 24 in drawn


def test_a_curve_to_a_large_size_has_few_points_of():
    prediction = predict_sizes(points_of(1, 2, 4, 8, node=None), "strong", node_size=None, sizes=[999_999])
    assert len(prediction.curve) < 200
