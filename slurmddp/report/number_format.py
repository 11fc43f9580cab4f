"""Numbers and times as text for the page. Pure."""

import math
from datetime import datetime
from typing import Final

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DIGITS: Final = 4
_LARGEST_PLAIN: Final = 1e6


def duration(seconds: float) -> str:
    """Return a time span: `0.05 s`, `8.2 s`, `3 min 12 s`, `4 h 05 min`, `2 d 3 h`; `inf` and `nan` as such."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    if seconds < 1:
        return f"{seconds:.2g} s" if seconds > 0 else "0 s"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def clock(time: float) -> str:
    """Return a time by the clock of this machine: `2026-11-21 23:44:14`."""
    try:
        return f"{datetime.fromtimestamp(time).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "at no time"


def zone(time: float) -> str:
    """Return the time zone of `clock`: `UTC`, `CET`."""
    try:
        return datetime.fromtimestamp(time).astimezone().tzname() or ""
    except (ValueError, OverflowError, OSError):
        return ""


def figure(value: float | None) -> str:
    """Return a number in four digits: `0.4569`, `3,916`, `1.2e-07`, `nan`; a dash for none."""
    if value is None:
        return "\N{EN DASH}"
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < _LARGEST_PLAIN:
        return f"{int(value):,}"
    if 1e3 <= abs(value) < _LARGEST_PLAIN:  # noqa: PLR2004 a thousand
        return f"{value:,.0f}"
    return f"{value:.{_DIGITS}g}"


def percent(share: float | None) -> str:
    """Return a share of one: `62.3 %`; a dash for none."""
    return "\N{EN DASH}" if share is None else f"{100 * share:.1f} %"
