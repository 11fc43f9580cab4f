"""The only way for a value into a script: one filter for `#SBATCH` lines, one for shell words. Pure.

sbatch splits `#SBATCH` lines by rules of its own (measured on 22.05): both kinds of quotes group, a backslash
escapes even inside single quotes, an unquoted `#` starts a comment, and a newline ends the directive.
"""

import re
import shlex
from collections.abc import Iterable

from slurmddp.errors import UsageError
from slurmddp.text import shown

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=\[\]-]+")


class Quoted(str):
    """A text that one of the filters made; a template may write nothing else that came from a user."""

    __slots__ = ()


def header(value: object) -> Quoted:
    """Quote a value of a `#SBATCH` line.

    Raises UsageError for characters that the line cannot carry.
    """
    text = str(value)
    if not text or not text.isprintable():
        raise UsageError(f"{shown(text)} cannot stand in a #SBATCH line: it is empty or not printable")
    if _PLAIN.fullmatch(text):
        return Quoted(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Quoted(f'"{escaped}"')


def shell(value: object) -> Quoted:
    """Quote a word, or each of several words, for bash; every byte but NUL is carried.

    What cannot be printed is written as bytes in `$'...'`, so that the script stays readable UTF-8 and shows
    what it does. What is quoted already stays as it is.
    """
    if isinstance(value, Quoted):
        return value
    if not isinstance(value, str) and isinstance(value, Iterable):
        return Quoted(" ".join(shell(word) for word in value))
    text = str(value)
    if "\0" in text:
        raise UsageError(f"{shown(text)} holds a NUL, which no command line can carry")
    return Quoted(shlex.quote(text) if text.isprintable() else _ansi_c(text))


def lines(value: str) -> Quoted:
    """Pass a user's own shell lines; they are code, so nothing is quoted.

    Raises UsageError for carriage returns (sbatch refuses the script) and NULs.
    """
    if "\r" in value or "\0" in value:
        raise UsageError("shell lines hold a carriage return or a NUL; save them with Unix line ends")
    return Quoted(value)


def _ansi_c(text: str) -> str:
    return "$'" + "".join(_ansi_c_character(char) for char in text) + "'"


def _ansi_c_character(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
