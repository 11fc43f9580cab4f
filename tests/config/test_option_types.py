"""One declaration gives every source its types, and every mistake its words."""

from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.config.option_types import Count, Option, convert, fields_of, unknown
from slurmddp.errors import UsageError
from slurmddp.text import quote_value


class Example(msgspec.Struct):
    count: Annotated[Count | None, Option(help="x")] = None
    rate: Annotated[float, Option(help="x")] = 1.0
    switch: Annotated[bool, Option(help="x")] = False
    some_texts: Annotated[tuple[str, ...], Option(help="x")] = ()
    word: Annotated[Literal["a", "b"], Option(help="x")] = "a"
    size: Annotated[str, msgspec.Meta(pattern="^[0-9]+$"), Option("x")] = ""
    name: Annotated[str, Option(help="x")] = ""
    internal: int = 0


FIELDS = fields_of(Example)


def test_only_annotated_fields_are_options():
    assert list(FIELDS) == ["count", "rate", "switch", "some-texts", "word", "size", "name"]


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("count", "3", 3), ("count", 3, 3), ("rate", "1e-3", 0.001), ("rate", 2, 2.0), ("switch", "true", True),
        ("some-texts", ("1", "b"), ("1", "b")), ("some-texts", ["x"], ("x",)), ("word", "b", "b"), ("size", 16, "16"),
    ],
)  # fmt: skip
def test_texts_and_typed_values_both_become_the_fields_type(key, raw, value):
    assert convert(FIELDS[key], raw, "here") == value


@pytest.mark.parametrize(
    ("key", "raw", "message"),
    [
        ("count", "0", "here: '0' is not a whole number, 1 to 2147483647"),
        ("count", True, "here: true is not a whole number, 1 to 2147483647"),
        ("count", "9" * 26, f"here: '{'9' * 26}' is not a whole number, 1 to 2147483647"),
        ("rate", "fast", "here: 'fast' is not a number"),
        ("switch", "maybe", "here: 'maybe' is not true or false"),
        ("some-texts", [1], 'here: [1] is not a list of strings, as in ["a", "b"]'),
        ("word", "c", "here: 'c' is not one of a, b"),
        ("size", True, "here: true is not a string"),
        ("name", 3, "here: 3 is not a string"),
        ("word", "a\n", "here: 'a\\n' is not one of a, b"),
    ],
)
def test_what_is_not_allowed_is_said_with_what_is(key, raw, message):
    with pytest.raises(UsageError) as caught:
        convert(FIELDS[key], raw, "here")
    assert str(caught.value) == message


def test_near_names_are_offered_else_all():
    assert str(unknown("cuont", FIELDS, "here")) == "here: unknown key 'cuont'; did you mean count?"
    assert str(unknown("zzzzz", ["a", "b"], "here", what="option")) == "here: unknown option 'zzzzz'; allowed are a, b"


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")) | st.integers() | st.none())
def test_whatever_is_shown_stays_on_its_line(value):
    assert quote_value(value).isprintable()
    quote_value(value).encode()
