"""Rows as lines of text, in columns. Pure."""

from collections.abc import Container, Sequence
from typing import Final

from slurmddp.terminal import printable

__all__ = ["WIDTH", "printable", "table"]

WIDTH: Final = 80
"""Columns of a terminal that everybody has."""


def table(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """Return the rows as lines, in columns as wide as their widest cell; columns in `right` end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths, right)).rstrip() for row in rows]


def _cells(row: Sequence[str], widths: Sequence[int], right: Container[int]) -> list[str]:
    cells = enumerate(zip(row, widths, strict=True))
    return [cell.rjust(width) if number in right else cell.ljust(width) for number, (cell, width) in cells]
