"""Slurm's lists: reads host lists as `n[1-3,07],m2` and arrays as `0-9:3%2`, writes numbers as `0-3,7`. Pure."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_ITEM: Final = r"(?:[^,\[\]]|\[[^\[\]]*\])+"
_LONGEST: Final = 65536
_INDICES: Final = r"(?a)(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?"


def expand(text: str, *, option: str = "--nodelist") -> tuple[str, ...]:
    """Return the names in a host list, in its order (scontrol(1), show hostnames).

    Raises UsageError with the option for a text that is not a host list.
    """
    names = try_expand(text)
    if names is None:
        raise UsageError(f"{option}: {quote_value(text)} is not a list of nodes, as in n[1-4],m2")
    return names


def try_expand(text: str) -> "tuple[str, ...] | None":
    """Return the names in a host list, in its order; None for a text that is not a host list."""
    items = re.findall(_ITEM, text)
    if not items or ",".join(items) != text:
        return None
    with suppress(ValueError, RecursionError):  # thousands of brackets
        names = tuple(islice((name for item in items for name in _names(item)), _LONGEST + 1))
        return names if len(names) <= _LONGEST else None
    return None


def names_in(*host_lists: "str | None") -> "set[str]":
    """Return the names in host lists; none of one that cannot be read, as of a file of names."""
    return {name for listed in host_lists for name in try_expand(listed or "") or ()}


def _names(item: str) -> Iterator[str]:
    head, bracket, rest = item.partition("[")
    if not re.fullmatch(r"[A-Za-z0-9._-]*", head) or not item:
        raise ValueError
    ranges, _, tail = rest.partition("]")
    for number in _numbers(ranges) if bracket else ("",):
        for end in _names(tail) if tail else ("",):
            yield head + number + end


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part, re.ASCII)
        if not match:
            raise ValueError
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + _LONGEST:
            raise ValueError
        for number in range(first, last + 1):
            yield f"{number:0{len(match[1])}d}"


def index_ranges(text: str) -> list[range]:
    """Return the indices of an array's tasks, as in `1-3,7,10-20:5%2`; nothing for a text that is no such list."""
    parts = [re.fullmatch(_INDICES, part.strip()) for part in text.partition("%")[0].split(",")]
    return [range(int(one[1]), int(one[2] or one[1]) + 1, int(one[3] or 1)) for one in parts if one and all(parts)]


def format_ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers as ranges: `0-3,7`."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ends)
