"""Slurm's times: parses and formats durations and moments. Pure."""

import re
from datetime import datetime
from typing import Final

_DURATION: Final = re.compile(r"(\d+-)?\d+(:\d+){0,2}", re.ASCII)


def seconds(limit: str) -> int | None:
    """Return a Slurm time in seconds, None when unlimited (sbatch(1), --time)."""
    if not limit[0].isdigit():
        return None
    days, dash, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if dash:
        hours, minutes, secs = (*parts, 0, 0)[:3]
    elif len(parts) == 1:
        hours, minutes, secs = 0, parts[0], 0
    else:
        hours, minutes, secs = (0, *parts)[-3:]
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs


def slurm_time(limit_s: int) -> str:
    """Return a time in seconds as Slurm writes it, `D-HH:MM:SS`, the inverse of `seconds`."""
    days, rest = divmod(limit_s, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def parse_duration(text: str) -> int | None:
    """Return a duration in seconds; None for `UNLIMITED` and for a text that is not a duration."""
    return seconds(text) if _DURATION.fullmatch(text) else None


def parse_moment(text: str) -> datetime | None:
    """Return a moment of the controller's clock in the local time zone; None for a text that is not a moment."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None
