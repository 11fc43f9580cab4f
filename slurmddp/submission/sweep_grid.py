"""`--set lr=1e-3,1e-4 --set seed=1..5` -> the tasks of an array. Pure."""

import csv
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from slurmddp.config.job_array import Task
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.option_types import convert, unknown
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.errors import UsageError
from slurmddp.text import quote_value

MAX_SETTINGS: Final = 1_000_000
"""The most settings of a sweep."""

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_PLACEHOLDER: Final = re.compile(
    rf"\{{\{{(?P<literal>{_KEY.pattern})\}}\}}|(?P<dollar>\$?)\{{(?P<key>{_KEY.pattern})\}}"
)
"""`{key}` for a value, and `{{key}}` for the text {key}. `${NAME}` may be a variable of a shell."""
_NUMBER: Final = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
_RANGE: Final = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?", re.ASCII)

Values = Mapping[str, tuple[str, ...]]
"""The values of each key, in the order given."""


def parse(given: Sequence[str]) -> Values:
    """Read `KEY=VALUE,...`; `1..5` counts, `0.1..0.5..0.2` by 0.2, and quotes keep a comma: `names="a,b",c`.

    Raises UsageError for anything else, and for a key that is given twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        key, equals, values = text.partition("=")
        if not equals or not _KEY.fullmatch(key):
            raise UsageError(f"--set {quote_value(text)}: give KEY=VALUE,..., as in lr=1e-3,1e-4 or seed=1..5")
        if key in found:
            raise UsageError(f"--set {key} is given twice; give all its values at once, as in {key}=1,2,3")
        found[key] = _parse_values(key, values)
    return found


def _parse_values(key: str, text: str) -> tuple[str, ...]:
    try:
        (words,) = csv.reader([text], strict=True) if text else ([],)
    except (csv.Error, ValueError) as error:
        why = "cannot be split at its commas; close the quotes"
        why = why if text.isprintable() else "has a character that cannot be printed; leave that character out"
        raise UsageError(f"--set {key}: {quote_value(text)} {why}") from error
    found = tuple(dict.fromkeys(value for word in words for value in _expand_range(key, word)))
    if not found or "" in found:
        raise UsageError(f"--set {key}: {quote_value(text)} holds an empty value; give at least one, as in {key}=1")
    return found


def _expand_range(key: str, word: str) -> Iterator[str]:
    match = _RANGE.fullmatch(word)
    if not match:
        yield word
        return
    if not match[3] and not all(re.fullmatch(r"[-+]?\d+", end) for end in match.groups()[:2]):
        raise UsageError(f"--set {key}: {word} has no step; give one, as in {word}..0.1, or a list, as in 0.1,0.2")
    first, last, step = Decimal(match[1]), Decimal(match[2]), abs(Decimal(match[3] or 1))
    if not step or abs(last - first) / step >= MAX_SETTINGS:
        raise UsageError(f"--set {key}: {word} counts to more than {MAX_SETTINGS} values; give fewer")
    towards = step if first <= last else -step
    for index in range(int(abs(last - first) / step) + 1):
        yield format(first + index * towards, "f")


def settings(values: Values, *, side_by_side: bool) -> list[dict[str, str]]:
    """Return every combination, the last key changing fastest, or the first of each, the second of each, and so on.

    Raises UsageError when there are too many, or lists side by side are not equally long.
    """
    if side_by_side and len({len(several) for several in values.values()}) > 1:
        lengths = ", ".join(f"{key} has {len(several)}" for key, several in values.items())
        raise UsageError(f"--zip needs the same number of values for each key, but {lengths}")
    if not side_by_side and math.prod(map(len, values.values())) > MAX_SETTINGS:
        raise UsageError(f"that makes more than {MAX_SETTINGS} settings; give fewer values")
    combined = zip(*values.values(), strict=True) if side_by_side else itertools.product(*values.values())
    return [dict(zip(values, combination, strict=True)) for combination in combined]


def tasks(job: JobSpec, wanted: Sequence[Mapping[str, str]]) -> tuple[Task, ...]:
    """Return the task of each setting: `{key}` in COMMAND is the value, or the key is an option of the bundled worker.

    Raises UsageError for a key that the program does not have, and for a value that it does not accept.
    """
    check_keys(job, tuple(wanted[0]) if wanted else ())
    return tuple(Task(dict(values), _apply_setting(job, values)) for values in wanted)


def check_keys(job: JobSpec, keys: Sequence[str]) -> None:
    """Raise UsageError for a key that the program does not have."""
    found = [match for word in job.command for match in _PLACEHOLDER.finditer(word) if match["key"]]
    for key in keys:
        is_placed = any(match["key"] == key for match in found)
        if key in JOB_FIELDS and not is_placed:
            raise UsageError(
                f"--set {key}: --{key} is an option of the job and the same for all settings; submit one sweep for "
                f"each value, or for a program's own --{key} type: -- train.py --{key} {{{key}}}"
            )
        if not job.command:
            if key not in WORKER_FIELDS:
                raise unknown(key, WORKER_FIELDS, f"--set {key}", what="option of the bundled worker")
        elif not is_placed:
            raise UsageError(
                f"--set {key}: COMMAND has no {{{key}}}; write it there, as in: train.py --{key} {{{key}}}"
            )
    for match in found:
        if not match["dollar"] and (unset := match["key"]) not in keys:
            raise UsageError(
                f"COMMAND has {{{unset}}}, but there is no --set {unset}; give --set {unset}=VALUE,..., or write "
                f"{{{{{unset}}}}} if the program is to get {{{unset}}}"
            )


def _apply_setting(job: JobSpec, values: Mapping[str, str]) -> JobSpec:
    if not job.command:
        given = {
            WORKER_FIELDS[key].name: convert(WORKER_FIELDS[key], raw, f"--set {key}") for key, raw in values.items()
        }
        return msgspec.structs.replace(job, worker=msgspec.structs.replace(job.worker, **given))

    def fill(match: re.Match[str]) -> str:
        if match["literal"]:
            return f"{{{match['literal']}}}"
        return match["dollar"] + values[match["key"]] if match["key"] in values else match[0]

    # all values in one pass, so that a placeholder inside a value stays as it is
    return msgspec.structs.replace(job, command=tuple(_PLACEHOLDER.sub(fill, word) for word in job.command))
