"""What a line says of its time, and what only looks so."""

from datetime import UTC, datetime

import pytest

from slurmddp.runs.timestamps import read_timestamp

LOCAL = datetime(2026, 11, 21, 23, 40, 18).timestamp()  # noqa: DTZ001 local time is meant
ZONED = datetime(2026, 11, 21, 23, 40, 18, tzinfo=UTC).timestamp()


def told(line: bytes, until=LOCAL + 3 * 86400):
    return read_timestamp(line, near=until, since=LOCAL - 3 * 86400, until=until)


@pytest.mark.parametrize(
    ("line", "time"),
    [
        (b"2026-11-21 23:40:18,250 INFO step 3", LOCAL + 0.25),
        (b"[2026-11-21 23:40:18,250][root][INFO] hydra", LOCAL + 0.25),
        (b"INFO 2026-11-21 23:40:18 vllm", LOCAL),
        (b"2026/11/21 23:40:18.5 tensorflow", LOCAL + 0.5),
        (b"2026-11-21T23:40:18+0000 slurmddp: job 7", ZONED),
        (b"2026-11-22T01:40:18.125+02:00 x", ZONED + 0.125),
        (b"2026-11-21T23:40:18Z x", ZONED),
        (b"slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:40:18 DUE TO TIME LIMIT ***", LOCAL),
        (b"[rank0]:[W1121 23:40:18.250000000 ProcessGroupNCCL.cpp:1250] Warning", LOCAL + 0.25),
        (b"W1121 23:40:18.250000 140 torch/distributed/run.py:793]", LOCAL + 0.25),
    ],
)
def test_times_as_programs_print_them(line, time):
    assert told(line) == pytest.approx(time)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"epoch 1/1  loss 0.456949",
        b"x" * 100 + b" 2026-11-21 23:40:18",
        b"data of 2019-01-01 00:00:00",
        b"ends 2036-01-01 00:00:00",
        b"2026-13-45 23:40:18",
        b"W1321 23:40:18.250000 x",
        b"12026-11-21 23:40:18",
    ],
)
def test_what_is_no_time_of_printing(line):
    assert told(line) is None


@pytest.mark.parametrize("about", [-1e12, 1e13])
def test_a_file_may_have_been_written_at_a_strange_time(about):
    assert read_timestamp(b"[E1121 23:10:11.123456 x.cpp:1] error", near=about) is not None


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("[E1231 23:59:59.000000 x] at the turn of the year", "2026-12-31T23:59:59"),
        ("I0101 12:00:00.000000 by a clock that is ahead", "2027-01-01T12:00:00"),
    ],
)
def test_a_stamp_without_a_year_is_of_the_last_such_day(text, local):
    about = datetime.fromisoformat("2027-01-01T00:00:05").timestamp()
    assert read_timestamp(text.encode(), near=about) == datetime.fromisoformat(local).timestamp()
