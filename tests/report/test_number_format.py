"""Numbers and times as people read them."""

import pytest

from slurmddp.report.number_format import duration, figure, percent


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0512, "0.0512s"),
        (8.24, "8.24s"),
        (59.97, "60s"),
        (192, "3m12s"),
        (3599.7, "1h"),
        (14_700, "4h5m"),
        (183_600, "2d3h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.456912, "0.4569"),
        (3916.0, "3,916"),
        (3916.4, "3,916"),
        (1.2e-7, "1.2e-07"),
        (12, "12"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (2.5e9, "2.5e+09"),
    ],
)
def test_figures(value, text):
    assert figure(value) == text


def test_shares():
    assert (percent(0.6234), percent(None)) == ("62.3 %", "\N{EN DASH}")
