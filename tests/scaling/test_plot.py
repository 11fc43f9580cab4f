"""The picture as a file, and in a terminal."""

import sys

import pytest

from slurmddp.errors import UsageError
from slurmddp.scaling.measurements import Point, advised, figures
from slurmddp.scaling.plot import Picture, drawn, in_text
from slurmddp.scaling.prediction import outlook

TIMES = ((1, (564, 570)), (2, (332, 340)), (3, (249, 249)), (4, (214, 215)))


@pytest.fixture
def picture():
    points = [Point(gpus=gpus, repeats_s=tuple((float(time_s),) for time_s in times)) for gpus, times in TIMES]
    found = figures(points, "strong")
    line = outlook(points, "strong", node_size=None, sizes=[64]).line
    return Picture(title="t", found=found, line=line, least=0.8, advised=advised(found, 0.8).point.gpus)


def test_a_picture_is_a_png_and_an_svg_of_points_law_and_ideal(picture):
    files = drawn(picture)
    assert files["png"].startswith(b"\x89PNG\r\n") and len(files["png"]) > 20_000
    assert files["svg"].startswith(b"<?xml") and b"</svg>" in files["svg"]


def test_the_same_study_is_the_same_picture(picture):
    assert drawn(picture)["svg"] == drawn(picture)["svg"]


def test_a_single_size_without_a_law_can_be_drawn():
    found = figures([Point(gpus=8, repeats_s=((1.0,),))], "weak")
    assert set(drawn(Picture(title="t", found=found, least=0.8))) == {"png", "svg"}


def test_a_terminal_shows_the_sizes_and_stays_in_its_columns(picture):
    lines = in_text(picture, 80, 18).splitlines()
    assert all(len(line) <= 80 and line.isprintable() for line in lines)
    assert sum(line.count("●") for line in lines) >= 3 and any("ideal" in line for line in lines)
    assert any(line.split() == ["1", "2", "3", "4"] for line in lines)


def test_without_the_libraries_the_extra_is_named(picture, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "plotext", None)
    with pytest.raises(UsageError, match=r"pip install 'slurmddp\[plot\]'"):
        drawn(picture)
    assert in_text(picture, 80, 18) == ""
