"""When a line was written, where it says so. Pure."""

import re
from datetime import datetime

_ISO = re.compile(r"\b(\d{4}-\d\d-\d\d)[T_ ](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*(Z|[+-]\d\d:?\d\d)?")
_GLOG = re.compile(r"\b[IWEF](\d\d?)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6})")

_LATEST = 1e11
"""Seconds since 1970 in the year 5138: a file may have been written at any time."""


def time_of(text: str, *, about: float) -> float | None:
    """Return the time inside a line, in seconds since 1970; None where there is none.

    `about` is a time near it: torch's own, `[E1121 23:10:00.123456 ...`, has no year. Without a zone it is local.
    """
    if match := _GLOG.search(text):
        month, day, hour, minute, second, micro = map(int, match.groups())
        year = datetime.fromtimestamp(min(max(about, 0.0), _LATEST)).astimezone().year
        made = (_local(y, month, day, hour, minute, second, micro) for y in (year - 1, year, year + 1))
        return min((time for time in made if time is not None), key=lambda time: abs(time - about), default=None)
    if match := _ISO.search(text):
        day_text, clock, fraction, zone = match.groups()
        try:
            return datetime.fromisoformat(
                f"{day_text}T{clock}.{(fraction or '0').ljust(6, '0')}{zone or ''}"
            ).timestamp()
        except ValueError:
            return None
    return None


def _local(*parts: int) -> float | None:
    try:
        return datetime(*parts).astimezone().timestamp()  # type: ignore[arg-type]
    except ValueError:
        return None
