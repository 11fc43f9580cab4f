"""Rows as lines of text, in columns, and texts that are longer than a line. Pure."""

import textwrap
from collections.abc import Container, Sequence
from typing import Final

WIDTH: Final = 80
"""Columns of a terminal that everybody has."""


def table(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """Return the rows as lines, in columns as wide as their widest cell; columns in `right` end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths, right)).rstrip() for row in rows]


def _cells(row: Sequence[str], widths: Sequence[int], right: Container[int]) -> list[str]:
    cells = enumerate(zip(row, widths, strict=True))
    return [cell.rjust(width) if number in right else cell.ljust(width) for number, (cell, width) in cells]


def printable(text: str) -> str:
    """Return a text that can do nothing to a terminal: what cannot be printed is written as an escape."""
    return text if text.isprintable() else ascii(text)[1:-1]


def wrapped(text: str, head: str = "", below: str = "", *, width: int = WIDTH, cut: bool = False) -> list[str]:
    """Return a text as lines, the first behind `head`, the others as far in or behind `below`; nothing for no text.

    What cannot be printed is written as an escape. A word that is too long has a line to itself, or is `cut`.
    """
    return textwrap.wrap(
        printable(text),
        max(width, len(head) + 20),
        initial_indent=head,
        subsequent_indent=below or " " * len(head),
        break_long_words=cut,
        break_on_hyphens=False,
    )
