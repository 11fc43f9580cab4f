"""Quotes values for a script: one filter for `#SBATCH` lines, one for shell words. Pure.

sbatch splits `#SBATCH` lines by its own rules (measured on 22.05): both kinds of quotes group, a backslash
escapes even inside single quotes, an unquoted `#` starts a comment, and a newline ends the directive.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from slurmddp.errors import UsageError
from slurmddp.text import count, quote_value

_OF_A_RANK = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_TASK_PID", "SLURM_GTIDS")
_LITERAL = re.compile(r"\$[{(0-9A-Za-z_]|`")
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+=\[\]-]+")


class Quoted(str):
    """A text from one of the filters; a template cannot write a user's value in another form."""

    __slots__ = ()


def header(value: object) -> Quoted:
    """Quote a value of a `#SBATCH` line.

    Raises UsageError for characters that are not allowed in the line.
    """
    text = str(value)
    if not text or not text.isprintable():
        raise UsageError(f"{quote_value(text)} cannot be written in a #SBATCH line: it is empty or not printable")
    if _PLAIN.fullmatch(text):
        return Quoted(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Quoted(f'"{escaped}"')


def shell(value: object) -> Quoted:
    """Quote a word, or each of several words, for bash; every byte except NUL is kept.

    Unprintable characters are written in `$'...'`, so that the script is readable UTF-8. What looks like a variable
    or a command is escaped in `"..."`: in `'...'` shellcheck takes it for a mistake. A Quoted is not changed.
    """
    if isinstance(value, Quoted):
        return value
    if not isinstance(value, str) and isinstance(value, Iterable):
        return Quoted(" ".join(shell(word) for word in value))
    text = str(value)
    if "\0" in text:
        raise UsageError(f"{quote_value(text)} has a NUL character, which is not allowed in a command line")
    if _LITERAL.search(text) and "!" not in text and text.isprintable():
        return Quoted('"' + re.sub(r'[\\"$`]', r"\\\g<0>", text) + '"')
    return Quoted(shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_ansi_c_character, text))}'")


def job_words(words: Iterable[str], places: Mapping[str, Quoted] = {}) -> Quoted:
    """Quote words for bash; `{SLURM_NAME}` in them is the variable's value in the job, and each of `places` its code.

    Raises UsageError for a variable that differs from rank to rank: it has no value where the ranks are started.
    """
    from slurmddp.config.job_spec import JOB_WORD  # noqa: PLC0415 slow to load, and --host quotes without it

    pattern = "|".join([JOB_WORD.pattern, *map(re.escape, places)])
    return Quoted(" ".join(_job_word(re.split(f"({pattern})", word), places) for word in words))


def _job_word(parts: Sequence[str], places: Mapping[str, Quoted]) -> str:
    """Return the shell code of a word; every second part of it is a place for a value."""
    for name in parts[1::2]:
        if name.strip("{}") in _OF_A_RANK:
            raise UsageError(f"{name} differs from rank to rank; the program can read it from its environment")
    codes = (
        (places.get(part) or f'"${{{part[1:-1]}:?}}"') if number % 2 else shell(part) if part else ""
        for number, part in enumerate(parts)
    )
    return "".join(codes) or "''"


def number_of(number: int, noun: str) -> Quoted:
    """Return a number with its noun, as in `1 node`, `2 nodes`."""
    return Quoted(count(number, noun))


def lines(value: str) -> Quoted:
    """Return a user's own shell lines unquoted: they are code.

    Raises UsageError for carriage returns (sbatch refuses the script) and NULs.
    """
    if "\r" in value or "\0" in value:
        raise UsageError("shell lines have a carriage return or a NUL; save them with Unix line ends")
    return Quoted(value)


def _ansi_c_character(char: str) -> str:
    if char in "\\'":
        return "\\" + char
    if char.isprintable():
        return char
    if char in "\n\r\t":
        return ascii(char)[1:-1]
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
