"""Slurm's times are read as its programs mean them."""

from datetime import datetime

import pytest

from slurmddp.slurm.values import parse_duration, parse_moment


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("30", 1800), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129600), ("1-0:30", 88200), ("1-1:1:1", 90061)],
)
def test_time_limits_are_read_as_sbatch_reads_them(limit, expected):
    assert parse_duration(limit) == expected


@pytest.mark.parametrize("text", ["", "UNLIMITED", "INVALID", "Partition_Limit", "1:2:3:4", "x"])
def test_a_text_that_is_no_duration_is_none(text):
    assert parse_duration(text) is None


def test_a_moment_is_the_controllers_local_time():
    found = parse_moment("2026-11-21T23:44:12")
    assert found == datetime(2026, 11, 21, 23, 44, 12).astimezone() and found.tzinfo
    assert parse_moment("Unknown") is parse_moment("") is None
