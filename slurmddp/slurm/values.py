"""The words in which Slurm's programs answer: numbers, times, lists, and how they say that there is none. Pure."""

import re
from collections.abc import Mapping
from typing import Final

Record = Mapping[str, str]
"""One line of `scontrol --oneliner show`, by key."""

_KEY_VALUE: Final = r"(?:^|(?<= ))([A-Za-z]\w*)=([^ ]*)"
_NUMBER: Final = r"(?a)(\d+(?:\.\d+)?)([KMG]?)\+?"
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}

NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "NONE", "None"})
"""How they say that there is no such value."""


def record(line: str) -> Record:
    """Return the pairs of one line; a key begins behind a space, a value holds none."""
    return dict(re.findall(_KEY_VALUE, line))


def number(text: str) -> int | None:
    """Return a count; None for `UNLIMITED` and whatever is none. `4K` are 4096, `16000+` at least 16000 (sinfo(1))."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    match = re.fullmatch(_NUMBER, text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def names(text: str) -> tuple[str, ...] | None:
    """Return a list of names; None for `ALL` and for none."""
    return None if text == "ALL" or text in NOTHING else tuple(dict.fromkeys(filter(None, text.split(","))))


def word(text: str) -> str:
    """Return a single value; empty for none."""
    return "" if text.strip() in NOTHING else text.strip()
