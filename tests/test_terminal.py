"""Texts that can do nothing to a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.terminal import clean


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\tb\n", "a\tb"),
        (b"\x1b[1;31mred\x1b[0m\r\n", "red"),
        (b"\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        (b"x\x08\x00y", "x\ufffd\ufffdy"),
        ("\u202e\u00e4".encode(), "\ufffd\u00e4"),
        (b" 10%\r 20%\r 30%\n", " 30%"),
        (b"\xff", "\ufffd"),
        (b"\n", ""),
    ],
)
def test_a_line_of_output_is_left_readable(written, shown):
    assert clean(written) == shown


@given(st.binary())
def test_nothing_gets_through_that_is_not_printable(line):
    assert all(char.isprintable() or char == "\t" for char in clean(line))
