"""Numbers and times as text for the page, and the scales of its charts, with round values for the ticks. Pure."""

import math
import sys
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple, Self

from slurmddp.text import format_duration

_MINUTE = 60
_DIGITS: Final = 4
_LEAST_WHOLE: Final = 1e3
_LARGEST_PLAIN: Final = 1e6
_DECADES: Final = 2.0
"""If positive values span more than this many powers of ten, the scale is logarithmic."""
_MOST_TICKS: Final = 5
_ROUND: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIMES_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DAY_S: Final = 86400
_MOST_DAYS: Final = 35
_LARGEST: Final = sys.float_info.max


def duration(seconds: float) -> str:
    """Return a time span: `0.051s`, `8.24s`, `3m12s`, `4h5m`, `2d3h`; `inf` and `nan` as such."""
    if not math.isfinite(seconds) or seconds < _MINUTE:
        return f"{seconds:.3g}s"
    return format_duration(round(seconds))


def clock(moment: float) -> str:
    """Return a time by the clock of this machine: `2026-11-21 23:44:14`."""
    return f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M:%S}"


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


def list_days(begin: float, end: float) -> list[float]:
    """Return midnights with all time between them, in seconds since 1970: of each day, of many those of Mondays."""
    days = 1 if end - begin <= _MOST_DAYS * _DAY_S else 7
    first = datetime.combine(datetime.fromtimestamp(begin).date(), time.min)  # noqa: DTZ006 by this machine's clock
    first -= timedelta(days=first.weekday() % days)
    count = 2 + max(0, int((end - first.timestamp()) // (days * _DAY_S)))
    return [(first + timedelta(days=days * number)).timestamp() for number in range(count)]


class Scale(NamedTuple):
    """A range, linear or logarithmic."""

    low: float
    high: float
    is_log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], *, may_be_log: bool = False) -> Self:
        """Return a scale with all of these finite values; a single value lies in the middle."""
        found = list(values)
        low, high = min(found, default=0.0), max(found, default=1.0)
        if may_be_log and low > 0 and math.log10(high) - math.log10(low) > _DECADES:
            return cls(low, high, is_log=True)
        if 0 <= low < high / 2:
            low = 0.0  # so near that it can be seen
        if low == high:
            pad = abs(low) / 2 or 0.5
            return cls(max(low - pad, -_LARGEST), min(high + pad, _LARGEST))
        return cls(low, high)

    def at(self, value: float) -> float:
        """Return the place of a value: 0 at the low end, 1 at the high end."""
        low, here, high = (
            math.log10(one) if self.is_log else one / 2  # the whole range may be too large for a number
            for one in (self.low, value, self.high)
        )
        return (here - low) / (high - low) if high > low else 0.5

    def ticks(self, *, whole: bool = False) -> list[float]:
        """Return a few round values in the range, in order; only whole numbers with `whole`."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            stride = 1 + (last - first) // _MOST_TICKS
            return [10.0**power for power in range(first, last + 1, stride)]
        width = self.high - self.low
        if not 0 < width < math.inf:
            return []
        power = 10.0 ** math.floor(math.log10(width / _MOST_TICKS))
        steps = [factor * power for factor in _ROUND]
        if whole:
            steps = [max(1.0, step) for step in steps if step < 1 or step.is_integer()]
        step = next((step for step in steps if step > 0 and width / step <= _MOST_TICKS), 0.0)
        if not step:
            return []
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)] if last - first <= 2 * _MOST_TICKS else []


def time_ticks(seconds: float) -> list[float]:
    """Return a few round times from 0 to `seconds`."""
    days = 1 + int(seconds // _DAY_S // _MOST_TICKS)
    step = next((step for step in _TIMES_S if seconds / step <= _MOST_TICKS), days * _DAY_S)
    return [float(at * step) for at in range(int(seconds // step) + 1)] if 0 < seconds < math.inf else [0.0]
