"""Text for people: without secrets, harmless to a terminal, in columns. Pure."""

import re
import textwrap
from collections.abc import Container, Sequence
from typing import Any, Final

WIDTH: Final = 80
"""Columns of a terminal that everybody has."""

MASK: Final = "***"

_WORDS: Final = (
    "TOKEN|KEY|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|PAT|AUTH|AUTHORIZATION|BEARER|CREDENTIALS?|CREDS"
    "|APIKEY|JWT|DSN"
)
_ENDINGS: Final = "TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|APIKEY|ACCESSKEY|SECRETKEY"
_SECRET: Final = rf"(?i)(^|[_-])({_WORDS})([_-]|$)|({_ENDINGS})$"
_NAMED: Final = r"(?<![\w-])([\w-]+)(?![\w./-])[\s=:]*(?=[^\s=:])"
_IN_ADDRESS: Final = r"(?<=://)([^/\s:@]*:)?[^/\s]+(?=@)"
_NO_SECRETS: Final = frozenset({"PWD", "OLDPWD"})
_ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_MARK: Final = "\ufffd"


def is_secret(name: str) -> bool:
    """Tell by its name whether a variable or an option holds a secret: HF_TOKEN does, TOKENIZERS_PARALLELISM not."""
    return name not in _NO_SECRETS and re.search(_SECRET, name.lstrip("-")) is not None


def masked(value: Any) -> Any:
    """Return a value of a job as it may be shown: of a text nothing that stands behind the name of a secret.

    Of several words also not the one behind a secret's option. Rather too little of a text is shown than too much.
    """
    if isinstance(value, dict):
        return {key: MASK if is_secret(str(key)) else masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        before = ("", *value)
        return type(value)(_after(last, item) for last, item in zip(before, value, strict=False))
    return _in_text(value) if isinstance(value, str) else value


def _after(last: Any, item: Any) -> Any:
    awaited = isinstance(last, str) and last.startswith("-") and "=" not in last and is_secret(last)
    return MASK if awaited and not str(item).startswith("-") else masked(item)


def _in_text(text: str) -> str:
    text = re.sub(_IN_ADDRESS, rf"\1{MASK}", text)
    named = next((found for found in re.finditer(_NAMED, text) if is_secret(found[1])), None)
    return text[: named.end()] + MASK if named else text


def shown(value: Any) -> str:
    """Return a value for a message of one line: no secret, nothing that can move the cursor or break the line."""
    value = masked(value)
    return ascii(value) if not isinstance(value, str) or not value.isprintable() or not value else f"'{value}'"


def printable(text: str) -> str:
    """Return a text that can do nothing to a terminal: what cannot be printed is written as an escape."""
    return text if text.isprintable() else ascii(text)[1:-1]


def clean(line: bytes) -> str:
    r"""Return a line of output for reading: no colours, a mark for what cannot be printed, no line end.

    Of a line that was written over, as progress bars are by `\r`, the last state is left.
    """
    text = line.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _MARK for char in _ESCAPE.sub("", text))


def table(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> list[str]:
    """Return the rows as lines, in columns as wide as their widest cell; columns in `right` end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths, right)).rstrip() for row in rows]


def _cells(row: Sequence[str], widths: Sequence[int], right: Container[int]) -> list[str]:
    cells = enumerate(zip(row, widths, strict=True))
    return [cell.rjust(width) if number in right else cell.ljust(width) for number, (cell, width) in cells]


def duration(time_s: float) -> str:
    """Return a time in its two largest units: 1d12h, 1m30s."""
    whole = int(time_s)
    parts = zip((whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60), "dhms", strict=True)
    words = [f"{number}{unit}" for number, unit in parts if number]
    return "".join(words[:2]) or "0s"


def shortened(text: str, width: int) -> str:
    """Return a printable text of at most so many columns; dots stand for what was left out."""
    line = printable(text)
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."


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
