"""Parses single values and lines of Slurm's programs: numbers, names, pairs of key and value. Pure."""

import re
from collections.abc import Mapping
from typing import Final

Record = Mapping[str, str]
"""One line of `scontrol --oneliner show`, by key."""

KEY_VALUE: Final = re.compile(r"(?<!\S)([A-Za-z][\w/:]*)=(\S*)")
"""Finds the pairs in a line of `scontrol --oneliner show`."""
_NUMBER: Final = re.compile(r"(?a)(\d+(?:\.\d+)?)([KMG]?)\+?")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
NO_VALUE: Final = frozenset({"", "(null)", "N/A", "n/a", "NONE", "None"})
"""Words for a missing value of a partition, a node, or the configuration."""


def parse_record(line: str) -> Record:
    """Return the pairs `Key=value` of one line."""
    return dict(KEY_VALUE.findall(line))


def parse_number(text: str) -> int | None:
    """Return a count, as 4096 for `4K` and 16000 for `16000+` (sinfo(1)); None for a text without one."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    match = _NUMBER.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def parse_names(text: str) -> tuple[str, ...] | None:
    """Return a list of names; None for `ALL` and for a missing value."""
    return None if text == "ALL" or text in NO_VALUE else tuple(dict.fromkeys(filter(None, text.split(","))))


def parse_word(text: str) -> str:
    """Return a single value; empty for a missing one."""
    return "" if text.strip() in NO_VALUE else text.strip()
