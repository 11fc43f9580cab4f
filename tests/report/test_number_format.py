"""Numbers and times as people read them; and round ticks, everything within the range, whatever the values."""

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.report.number_format import Scale, clock, duration, figure, list_days, percent, time_ticks


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


VALUES = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8)


@given(VALUES, st.booleans(), st.booleans())
def test_any_values_lie_within_and_ticks_too(values, may_be_log, whole):
    scale = Scale.over(values, may_be_log=may_be_log)
    assert all(-1e-9 <= scale.at(value) <= 1 + 1e-9 for value in (*values, *scale.ticks(whole=whole)))
    assert len(scale.ticks(whole=whole)) <= 12


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 100], [0, 20, 40, 60, 80, 100]),
        ([0.87, 0.91], [0.87, 0.88, 0.89, 0.9, 0.91]),
        ([-3, 3], [-2, 0, 2]),
        ([5, 5], [3, 4, 5, 6, 7]),
        ([1e-8, 0.03], [1e-8, 1e-6, 1e-4, 1e-2]),
        ([], [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round(values, ticks):
    assert Scale.over(values, may_be_log=True).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize("value", [-1.7e308, 1.7e308, 5e-324])
def test_a_single_value_at_the_end_of_all_numbers_lies_within(value):
    assert 0 <= Scale.over([value]).at(value) <= 1


def test_a_range_of_more_than_two_decades_above_zero_is_logarithmic():
    assert Scale.over([1e-3, 1], may_be_log=True).is_log
    assert not Scale.over([1e-3, 1]).is_log
    assert not Scale.over([0, 1e6], may_be_log=True).is_log
    assert not Scale.over([1, 50], may_be_log=True).is_log


def test_steps_are_whole():
    assert Scale.over([0, 3]).ticks(whole=True) == [0, 1, 2, 3]
    assert Scale.over([0, 12]).ticks(whole=True) == [0, 5, 10]


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [(0, [0]), (9, [0, 2, 4, 6, 8]), (370, [0, 120, 240, 360]), (86400 * 30, [0, 604800, 1209600, 1814400, 2419200])],
)
def test_times_are_round(seconds, ticks):
    assert time_ticks(seconds) == ticks


@pytest.fixture
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_days_begin_at_midnight_also_when_the_clocks_change():
    """In the night to 25 October 2026 an hour comes twice."""
    begin, end = (datetime.fromisoformat(text).timestamp() for text in ("2026-10-24T15:00", "2026-10-26T08:00"))
    found = list_days(begin, end)
    assert [clock(day) for day in found] == [f"2026-10-{day} 00:00:00" for day in (24, 25, 26, 27)]
    assert found[2] - found[1] == 25 * 3600


@pytest.mark.usefixtures("berlin")
def test_of_many_days_weeks_are_shown_from_monday_on():
    begin, end = (datetime.fromisoformat(text).timestamp() for text in ("2026-09-02", "2026-10-26T08:00"))
    found = [clock(day)[:10] for day in list_days(begin, end)]
    assert (found[0], found[-2], found[-1], len(found)) == ("2026-08-31", "2026-10-26", "2026-11-02", 10)
