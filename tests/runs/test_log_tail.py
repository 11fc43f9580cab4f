"""Logs that grow: whole lines, each once, a tail that is read from the end, and what a line says of its time."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.runs import files
from slurmddp.runs.log_tail import LINE_BYTES, GrowingFile, end_of_lines, read_timestamp, start_of_tail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "0.out"


def test_bytes_are_not_touched(path):
    path.write_bytes(b"a\r\nb\x1b[1m\xff\x00\rc\n\nlast")
    file = GrowingFile(path)
    assert file.read_lines() == [b"a\r\n", b"b\x1b[1m\xff\x00\rc\n", b"\n"]
    assert file.read_lines() == []
    assert file.read_lines(rest=True) == [b"last"]
    assert file.read_lines(rest=True) == []


def test_a_line_longer_than_a_block_is_read_whole(path):
    path.write_bytes(b"x" * 5000 + b"\nshort\n")
    file = GrowingFile(path)
    assert file.read_lines(1024) == [b"x" * 5000 + b"\n", b"short\n"]


def test_a_line_without_an_end_is_passed_on_in_pieces(path):
    path.write_bytes(b"x" * (LINE_BYTES + 1))
    assert b"".join(GrowingFile(path).read_lines(4096)) == b"x" * LINE_BYTES


def test_a_hole_is_passed_over_whatever_its_size(path):
    """A log that was truncated, while its writer kept its place, begins with a hole."""
    path.touch()
    os.truncate(path, 10**12)
    assert GrowingFile(path).read_lines(rest=True) == []
    with path.open("ab") as file:
        file.write(b"\none\ntwo\n")
    file = GrowingFile(path)
    assert [line.strip(b"\0") for line in file.read_lines()] == [b"\n", b"one\n", b"two\n"]
    assert file.read_lines(rest=True) == [] and not file.has_more()


def test_a_tail_is_found_without_reading_a_file_that_has_no_lines(path):
    path.touch()
    os.truncate(path, 10**12)
    assert start_of_tail(path, 5, 10**12) == 10**12 - 6 * LINE_BYTES
    assert end_of_lines(path) == 10**12 - 2 * LINE_BYTES


def test_nothing_behind_the_end_is_read(path):
    path.write_bytes(b"one\ntwo\nthree\n")
    file = GrowingFile(path, end=8)
    assert file.read_lines() == [b"one\n", b"two\n"] and file.read_lines() == []


def test_a_file_that_is_not_there_is_empty(path):
    file = GrowingFile(path)
    assert not file.has_more() and file.read_lines() == []
    assert start_of_tail(path, 3, 0) == end_of_lines(path) == 0


def test_a_file_that_is_missing_for_a_moment_is_not_read_again(path):
    path.write_bytes(b"one\n")
    file = GrowingFile(path)
    assert file.read_lines() == [b"one\n"]
    path.rename(path.with_name("hidden"))
    assert not file.has_more()
    path.with_name("hidden").rename(path)
    assert not file.has_more() and file.read_lines() == []


def test_a_file_that_vanishes_between_its_size_and_its_opening_is_empty(path, monkeypatch):
    def vanish(*_, **__):
        raise FileNotFoundError

    path.write_bytes(b"one\n")
    monkeypatch.setattr(files, "open_regular", vanish)
    assert end_of_lines(path) == 0


def test_no_descriptor_stays_open(path):
    path.write_bytes(b"one\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    file = GrowingFile(path)
    file.read_lines()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@given(st.lists(st.binary(max_size=3000).map(lambda line: line.replace(b"\n", b"")), max_size=12), st.booleans())
def test_a_tail_is_the_last_lines_of_the_whole(tmp_path_factory, lines, is_ended):
    path = tmp_path_factory.mktemp("tail") / "file"
    text = b"\n".join(lines) + (b"\n" if is_ended else b"")
    path.write_bytes(text)
    whole = text.split(b"\n")
    whole = [line + b"\n" for line in whole[:-1]] + ([whole[-1]] if whole[-1] else [])
    for count in (0, 1, 2, 5, 100):
        expected = b"".join(whole[max(0, len(whole) - count) :])
        assert text[start_of_tail(path, count, len(text)) :] == expected
    assert text[: end_of_lines(path)] == text[: text.rfind(b"\n") + 1]


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
