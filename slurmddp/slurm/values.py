"""Parses single values and lines of Slurm's programs: numbers, names, times, pairs of key and value. Pure."""

from __future__ import annotations
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

Record = Mapping[str, str]
"""One line of `scontrol --oneliner show`, by key."""

_KEY_VALUE: Final = re.compile(r"(?<!\S)([A-Za-z][\w/:]*)=(\S*)")
"""Finds the pairs in a line of `scontrol --oneliner show`."""
_NUMBER: Final = re.compile(r"(?a)(\d+(?:\.\d+)?)([KMGT]?)\+?")
_DURATION: Final = re.compile(r"(\d+-)?\d+(:\d+){0,2}", re.ASCII)
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LATEST_START: Final = timedelta(days=60)
"""Slurm expects the start behind a job without a time limit in a year or in centuries: such a time says nothing."""
NO_VALUE: Final = frozenset({"", "(null)", "N/A", "n/a", "NONE", "None"})
"""Words for a missing value of a partition, a node, or the configuration."""


def parse_record(line: str) -> Record:
    """Return the pairs `Key=value` of one line."""
    return dict(_KEY_VALUE.findall(line))


def parse_number(text: str) -> int | None:
    """Return a count, as 4096 for `4K` and 16000 for `16000+` (sinfo(1)); None for a text without one."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    match = _NUMBER.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def parse_names(text: str) -> tuple[str, ...] | None:
    """Return a list of names; None for `ALL` and for a missing value."""
    return None if text == "ALL" or text in NO_VALUE else tuple(dict.fromkeys(filter(None, text.split(","))))


def parse_word(text: str) -> str:
    """Return a single value; empty for a missing one."""
    return "" if text.strip() in NO_VALUE else text.strip()


def parse_duration(text: str) -> int | None:
    """Return a Slurm time in seconds (sbatch(1), --time); None for `UNLIMITED` and for a text that is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    days, dash, clock = text.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    begins_with_hours = dash or len(parts) > 2  # noqa: PLR2004 - hours, minutes and seconds
    hours, minutes, secs = ((*parts, 0, 0) if begins_with_hours else (0, *parts, 0))[:3]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs


def slurm_time(limit_s: int) -> str:
    """Return a time in seconds as Slurm writes it, `D-HH:MM:SS`, the inverse of `parse_duration`."""
    days, rest = divmod(limit_s, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def parse_moment(text: object) -> datetime | None:
    """Return a moment in ISO form, in the local time zone where it names none; None for anything else."""
    try:  # `suppress` takes as long as the rest
        return datetime.fromisoformat(text).astimezone() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
