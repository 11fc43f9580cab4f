"""Numbers and times as text for the page. Pure."""

import math
from datetime import datetime
from typing import Final

from slurmddp.text import format_duration

_MINUTE = 60
_DIGITS: Final = 4
_LEAST_WHOLE: Final = 1e3
_LARGEST_PLAIN: Final = 1e6


def duration(seconds: float) -> str:
    """Return a time span: `0.051s`, `8.24s`, `3m12s`, `4h5m`, `2d3h`; `inf` and `nan` as such."""
    if not math.isfinite(seconds) or seconds < _MINUTE:
        return f"{seconds:.3g}s"
    return format_duration(round(seconds))


def clock(time: float) -> str:
    """Return a time by the clock of this machine: `2026-11-21 23:44:14`."""
    return f"{datetime.fromtimestamp(time).astimezone():%Y-%m-%d %H:%M:%S}"


def zone(time: float) -> str:
    """Return the time zone of `clock`: `UTC`, `CET`."""
    return datetime.fromtimestamp(time).astimezone().tzname() or ""


def figure(value: float | None) -> str:
    """Return a number in four digits: `0.4569`, `3,916`, `1.2e-07`, `nan`; a dash for none."""
    if value is None:
        return "\N{EN DASH}"
    if not math.isfinite(value):
        return str(value)
    if abs(value) < _LARGEST_PLAIN and (value == int(value) or abs(value) >= _LEAST_WHOLE):
        return f"{value:,.0f}"
    return f"{value:.{_DIGITS}g}"


def percent(share: float | None) -> str:
    """Return a share of one: `62.3 %`; a dash for none."""
    return "\N{EN DASH}" if share is None else f"{100 * share:.1f} %"
