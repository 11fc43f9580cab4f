"""Output for the terminal and for programs: its width, its colours, messages, JSON; and questions."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

import click

from slurmddp.errors import UsageError

JSON_SCHEMA: Final = 1
"""The version of what --json prints: it grows when a name or its meaning changes, not when a name is added."""


def print_json(**fields: Any) -> None:
    """Print the result of a command for programs; docs/json.md has the names. A number that JSON has not is a text."""
    click.echo(json.dumps({"schema": JSON_SCHEMA, **fields}))


def print_result(fields: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print the result of a command: for programs as `print_json` does, or as lines for people."""
    if as_json:
        print_json(**fields)
    elif text := "\n".join(lines):
        click.echo(text)


def screen_width() -> int:
    """Return the columns of the terminal; without a limit where standard output is none."""
    if not sys.stdout.isatty():
        return sys.maxsize
    import shutil

    return shutil.get_terminal_size().columns


def paint(text: str, colour: str) -> str:
    """Return a text in this colour on a terminal; what is red is bold, too, which NO_COLOR leaves (no-color.org)."""
    is_red, no_colour = colour == "red", bool(os.environ.get("NO_COLOR"))
    if not (colour and sys.stdout.isatty()) or (no_colour and not is_red):
        return text
    return click.style(text, fg=None if no_colour else colour, bold=is_red or None)


def print_message(*lines: str) -> None:
    """Print lines on stderr; stdout has only the result."""
    for line in lines:
        click.echo(line, err=True)


def confirm(question: str, otherwise: str) -> None:
    """Ask on the terminal; raise Abort if it is refused, UsageError with `otherwise` if there is none to ask on."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(otherwise)
    click.confirm(question, abort=True, err=True)


def write_bytes(stream: TextIO, raw: bytes) -> None:
    """Write bytes unchanged and flush; raise OSError if that fails."""
    stream.buffer.write(raw)
    stream.flush()
