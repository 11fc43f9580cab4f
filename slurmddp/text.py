"""Text for people: hide secrets, escape control characters, format columns and numbers. Pure."""

import re
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

WIDTH: Final = 80
"""Columns that every terminal has."""
_LEAST: Final = 8
"""No column of a table becomes narrower than this."""

MASK: Final = "***"

_WORDS: Final = (
    "TOKEN|KEY|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|PAT|AUTH|AUTHORIZATION|BEARER|CREDENTIALS?|CREDS"
    "|APIKEY|JWT|DSN"
)
_ENDINGS: Final = "TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|APIKEY|ACCESSKEY|SECRETKEY"
_SECRET: Final = rf"(?i)(^|[_-])({_WORDS})([_-]|$)|({_ENDINGS})$"
_NAMED: Final = r"(?<![\w-])([\w-]+)(?![\w./-])[\s=:]*(?=[^\s=:])"
_IN_ADDRESS: Final = r"(?<=://)([^/\s:@]*:)?[^/\s]+(?=@)"
_NOT_SECRET: Final = frozenset({"PWD", "OLDPWD"})
_ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_MARK: Final = "\ufffd"


def is_secret(name: str) -> bool:
    """Return whether a name looks like that of a secret: HF_TOKEN does, TOKENIZERS_PARALLELISM does not."""
    return name not in _NOT_SECRET and re.search(_SECRET, name.lstrip("-")) is not None


def mask_secrets(value: Any) -> Any:
    """Return a value of a job without secrets.

    A text loses everything after the name of a secret, also if more is lost than the secret. In a list of words, the
    word after the option of a secret is replaced.
    """
    if isinstance(value, dict):
        return {key: MASK if is_secret(str(key)) else mask_secrets(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        before = ("", *value)
        return type(value)(_mask_word(last, item) for last, item in zip(before, value))
    return _mask_text(value) if isinstance(value, str) else value


def _mask_word(last: Any, item: Any) -> Any:
    is_value = isinstance(last, str) and last.startswith("-") and "=" not in last and is_secret(last)
    return MASK if is_value and not str(item).startswith("-") else mask_secrets(item)


def _mask_text(text: str) -> str:
    text = re.sub(_IN_ADDRESS, rf"\1{MASK}", text)
    named = next((found for found in re.finditer(_NAMED, text) if is_secret(found[1])), None)
    return text[: named.end()] + MASK if named else text


def quote_value(value: Any) -> str:
    """Return a value for a message of one line: quoted, without secrets and control characters."""
    value = mask_secrets(value)
    if isinstance(value, bool):
        return str(value).lower()
    return ascii(value) if not isinstance(value, str) or not value.isprintable() or not value else f"'{value}'"


def escape_text(text: str) -> str:
    """Return a text with characters that cannot be printed as escapes, so that it is safe for a terminal."""
    return text if text.isprintable() else ascii(text)[1:-1]


def clean_line(line: bytes) -> str:
    r"""Return a line of output without colours and line end; U+FFFD replaces characters that cannot be printed.

    Of a line that was overwritten after `\r`, as by a progress bar, only the last version is returned.
    """
    text = line.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _MARK for char in _ESCAPE.sub("", text))


def format_table(
    rows: Sequence[Sequence[str]],
    *,
    head: Sequence[str] = (),
    right: Container[int] = (),
    width: int = sys.maxsize,
) -> list[str]:
    """Return the rows as lines below `head`, in columns as wide as their widest cell; those in `right` end together.

    Characters that cannot be printed are escaped. A column that is empty below its head is left out. If lines would be
    wider than `width`, the widest columns become narrower, the last one half as much: it is a text, which loses its
    end, and the others are names, which lose their middle. What is still too wide loses its end.
    """
    table = [[escape_text(cell) for cell in row] for row in (head, *rows) if row]
    columns = {at: cells for at, cells in enumerate(zip(*table)) if any(cells[bool(head) :])}
    widths, last = {at: min(width, max(map(len, cells))) for at, cells in columns.items()}, max(columns, default=0)
    while sum(widths.values()) + 2 * (len(widths) - 1) > width and (
        wide := [at for at in widths if widths[at] > _LEAST]
    ):
        widths[max(wide, key=lambda at: widths[at] / (1 + (at == last)))] -= 1

    def fit(text: str, at: int) -> str:
        cell = shorten_text(text, widths[at]) if at == last else _shorten_middle(text, widths[at])
        return cell.rjust(widths[at]) if at in right else cell.ljust(widths[at])

    return [shorten_text("  ".join(fit(row[at], at) for at in widths).rstrip(), width) for row in table if widths]


def _shorten_middle(text: str, width: int) -> str:
    """Return a name of at most `width` columns; what tells it from similar ones may be at either end."""
    tail = (width - 3) // 2
    return text if len(text) <= width else f"{text[: width - 3 - tail]}...{text[len(text) - tail :]}"


def format_duration(time_s: float) -> str:
    """Return a time in its two largest units, as in 1d12h or 1m30s."""
    whole = max(0, int(time_s))
    parts = zip((whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60), "dhms")
    words = [f"{number}{unit}" for number, unit in parts if number]
    return "".join(words[:2]) or "0s"


def count(number: int, noun: str) -> str:
    """Return a number with a noun in singular or plural, as in `1 job`, `2 jobs`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def list_some(names: Sequence[str], most: int) -> str:
    """Return names in one line; of more than `most`, the first ones and how many are left out."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shorten_text(text: str, width: int) -> str:
    """Return a printable text of at most `width` columns; three dots replace the end of a longer one."""
    line = escape_text(text)
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."


def wrap_text(text: str, head: str = "", below: str = "", *, width: int = WIDTH, cut: bool = False) -> list[str]:
    """Return a text as lines; the first begins with `head`, the others with `below`, or indented by the same width.

    Characters that cannot be printed are escaped. A word longer than a line is on a line of its own, or is `cut`.
    """
    import textwrap  # noqa: PLC0415 - most commands wrap no text, and every start would pay for it

    return textwrap.wrap(
        escape_text(text),
        max(width, len(head) + 20),
        initial_indent=head,
        subsequent_indent=below or " " * len(head),
        break_long_words=cut,
        break_on_hyphens=False,
    )


def suggest(
    name: str, known: Iterable[str], otherwise: str, *, cutoff: float = 0.5, show: Callable[[str], str] = str
) -> str:
    """Return `did you mean A or B?`, with at most three known names that begin with this one, or are spelled like it.

    `cutoff` is difflib's, 1 for equal names; each name is written by `show`. Without any the answer is `otherwise`.
    """
    import difflib  # noqa: PLC0415 needed only for an error

    names = list(known)
    begun = sorted((one for one in names if name and one.startswith(name)), key=len)
    near = begun[:3] or difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(map(show, near))}?" if near else otherwise
