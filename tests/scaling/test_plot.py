"""Plots of a study as files and on a terminal."""

import sys

import pytest

from slurmddp.errors import UsageError
from slurmddp.scaling.fit import Prediction, predict_sizes
from slurmddp.scaling.formatting import Study
from slurmddp.scaling.measurements import Point, compare_sizes
from slurmddp.scaling.plot import draw_files

TIMES = ((1, (564, 570)), (2, (332, 340)), (3, (249, 249)), (4, (214, 215)))


@pytest.fixture
def study():
    points = [Point(gpus=gpus, repeats_s=tuple((float(time_s),) for time_s in times)) for gpus, times in TIMES]
    found = compare_sizes(points, "strong")
    return Study(
        name="t",
        scaling="strong",
        results=found,
        prediction=predict_sizes(points, "strong", node_size=None, sizes=[64]),
        min_efficiency=0.8,
    )


def test_a_picture_is_a_png_and_an_svg_of_points_law_and_ideal(study):
    files = draw_files(study)
    assert files["png"].startswith(b"\x89PNG\r\n") and len(files["png"]) > 20_000
    assert files["svg"].startswith(b"<?xml") and b"</svg>" in files["svg"]


def test_the_same_study_is_the_same_picture(study):
    assert draw_files(study)["svg"] == draw_files(study)["svg"]


def test_a_single_size_without_a_law_can_be_drawn():
    found = compare_sizes([Point(gpus=8, repeats_s=((1.0,),))], "weak")
    alone = Study(name="t", scaling="weak", results=found, prediction=Prediction(), min_efficiency=0.8)
    assert set(draw_files(alone)) == {"png", "svg"}


def test_without_matplotlib_the_extra_is_named(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'slurmddp\[plot\]'"):
        draw_files(study)
