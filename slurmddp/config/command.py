"""COMMAND: reads the words that users type, and returns the form that the worker takes. No I/O."""

import re
from pathlib import PurePath
from typing import Final

from slurmddp.errors import UsageError
from slurmddp.text import quote_value

_TORCHRUN = "torchrun"
_RUNNERS = rf"(.*/)?(python(3(\.\d+)?)?|{_TORCHRUN})"
_NAME_LENGTH: Final = 64

NO_PYTHON: Final = "--no-python"
"""The worker's option for a COMMAND that is an executable."""


def normalise(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove a leading `python`, `python -u` or `torchrun`: each rank already runs in a Python.

    Raises UsageError for their other options, and for an empty first word.
    """
    if not words:
        return ()
    if not re.fullmatch(_RUNNERS, words[0]):
        return _checked(words)
    rest = words[1:]
    while rest and rest[0] == "-u":
        rest = rest[1:]
    if not rest:
        raise UsageError(f"COMMAND is {quote_value(words[0])} alone; name a script, as in: train.py --lr 0.1")
    if rest[0].startswith("-") and rest[0] != "-m":
        raise _lost_option(rest[0], words[0])
    return _checked(rest)


def check_executable(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a COMMAND that is an executable. Raises UsageError when the first word cannot be one."""
    if words and (not words[0] or words[0].startswith("-")):
        raise UsageError(
            f"--no-python: COMMAND is {quote_value(words[0])}; name an executable, as in: --no-python ./train --lr 0.1"
        )
    return _checked(words) if words else ()


def interpreter(words: tuple[str, ...]) -> str | None:
    """Return the Python of a leading `/path/to/python` or `/path/to/torchrun`; None for a word without a path."""
    if not words or "/" not in words[0] or not re.fullmatch(_RUNNERS, words[0]):
        return None
    path = PurePath(words[0])
    return str(path.with_name("python")) if path.name == _TORCHRUN else words[0]


def is_worker(words: tuple[str, ...]) -> bool:
    """Return whether these words are for the bundled worker: no words, or its options."""
    return not words or (words[0].startswith("-") and words[0] != "-m")


def script_of(words: tuple[str, ...]) -> str | None:
    """Return the path of the script; None for a module or the bundled worker."""
    return None if is_worker(words) or words[0] == "-m" else words[0]


def replace_arguments(words: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return COMMAND with `more` at its end, and without its own arguments of the same names.

    An argument's name is a word that begins with `-`, or what stands before the `=` of a word. Its value is what
    follows the `=`, or the next word if `more` gives that argument a value, too, and the word does not begin with `-`.
    """
    given = {
        _argument_name(word): "=" in word or not _argument_name(following)
        for word, following in zip(more, (*more[1:], "-"), strict=True)
        if _argument_name(word)
    }
    first = 2 if words[0] == "-m" else 1
    left, rest = list(words[:first]), list(words[first:])
    while rest:
        word = rest.pop(0)
        name = _argument_name(word)
        if name not in given:
            left.append(word)
        elif given[name] and "=" not in word and rest and not _argument_name(rest[0]):
            rest.pop(0)
    return (*left, *more)


def _argument_name(word: str) -> str:
    """Return the name of `--name`, `--name=value` or `name=value`; empty for another word, as a value or -1."""
    name, equals, _ = word.partition("=")
    return name if equals or re.match(r"-[^\d.]", word) or word == "-" else ""


def name_of(words: tuple[str, ...]) -> str:
    """Return a job's name for a script or a module: its stem, with `-` for characters that are not allowed."""
    named = words[1].rpartition(".")[2] if words[0] == "-m" else PurePath(words[0]).stem
    return as_name(named)


def as_name(text: str) -> str:
    """Return the nearest allowed job name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:_NAME_LENGTH]
    return f"job-{name}"[:_NAME_LENGTH] if not name or name.isdigit() else name


def _lost_option(option: str, runner: str) -> UsageError:
    what = f"COMMAND: option {quote_value(option)} of {quote_value(runner)}"
    if PurePath(runner).name == _TORCHRUN:
        return UsageError(f"{what}: use slurmddp's own options instead, as --nodes and --ntasks-per-node")
    return UsageError(f"{what}: of python's options only -u and -m are allowed; leave {quote_value(option)} out")


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words[0]:
        raise UsageError("COMMAND begins with an empty word; name a script, as in: train.py --lr 0.1")
    if words[0] == "-m" and (len(words) == 1 or not words[1]):
        raise UsageError("COMMAND: -m needs a module, as in: -m pkg.train --lr 0.1")
    for word in words:
        if "\0" in word:
            raise UsageError(
                f"COMMAND: {quote_value(word)} has a NUL character, which is not allowed in a command line"
            )
    return words
