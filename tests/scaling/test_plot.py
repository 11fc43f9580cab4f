"""Plots of a study as files."""

import sys

import pytest

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Point, Study, compare_sizes
from slurmddp.scaling.plot import draw_files

TIMES = ((1, (564, 570)), (2, (332, 340)), (3, (249, 249)), (4, (214, 215)))


@pytest.fixture
def study():
    points = [Point(gpus=gpus, nodes=1, repeats_s=tuple((float(time_s),) for time_s in times)) for gpus, times in TIMES]
    return Study(name="t", scaling="strong", results=compare_sizes(points, "strong"), min_efficiency=0.8)


def test_a_picture_is_a_png_and_an_svg_of_points_and_ideal_and_always_the_same(study):
    files = draw_files(study)
    assert files["png"].startswith(b"\x89PNG\r\n") and len(files["png"]) > 20_000
    assert files["svg"].startswith(b"<?xml") and b"</svg>" in files["svg"]
    assert draw_files(study)["svg"] == files["svg"]


def test_a_single_size_can_be_drawn():
    found = compare_sizes([Point(gpus=8, nodes=1, repeats_s=((1.0,),))], "weak")
    assert set(draw_files(Study(name="t", scaling="weak", results=found, min_efficiency=0.8))) == {"png", "svg"}


def test_without_matplotlib_the_extra_is_named(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'slurmddp\[plot\]'"):
        draw_files(study)
