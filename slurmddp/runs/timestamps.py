"""Reads when a line was printed, where the line has a timestamp. Pure.

Read are a date and a time of day near the line's beginning, as Python's logging and Slurm print them, and the
timestamps of glog, which torch and NCCL use: `[rank0]:[W1121 23:40:18.123456789 ...`. Without a zone it is this
machine's time.
"""

import math
import re
from datetime import datetime
from functools import lru_cache
from typing import Final

HEAD_BYTES: Final = 80
"""A timestamp further into the line is not read."""
SLACK_S: Final = 60.0
"""Two machines' clocks may differ by this much."""

_DAY_S: Final = 86400.0
_LATEST: Final = 1e11
"""Seconds since 1970 in the year 5138: the time of a file may be anything."""
_DATE: Final = re.compile(
    rb"(?<!\d)\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_GLOG: Final = re.compile(rb"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})\b")


def read_timestamp(line: bytes, *, near: float, since: float = -math.inf, until: float = math.inf) -> float | None:
    """Return when a line says that it was printed, in seconds since 1970; None when it does not say.

    A timestamp of glog has no year: it is in the last year in which it is at most a day after `near`. Other dates in a
    line, before `since` or after `until`, are data.
    """
    head = line[:HEAD_BYTES]
    found = (_DATE.search(head) or _GLOG.search(head)) if b":" in head else None
    time = _parse(found[0], near) if found else None
    return time if time is not None and since - SLACK_S <= time <= until + SLACK_S else None


@lru_cache(maxsize=256)  # many lines in a row have the same timestamp
def _parse(text: bytes, near: float) -> float | None:
    """Return the time of a timestamp; None for what is no date, as 2026-13-45."""
    glog = _GLOG.match(text)
    try:
        if glog is None:
            return datetime.fromisoformat(text.decode().replace("/", "-")).timestamp()
        near = min(max(near, 0.0), _LATEST)
        year = datetime.fromtimestamp(near).astimezone().year
        parts = tuple(map(int, glog.groups()[:5]))  # month to second
        times = (datetime(y, *parts).timestamp() for y in (year + 1, year, year - 1))  # type: ignore[arg-type]  # noqa: DTZ001 local time
        return next((time + float(b"0." + glog[6]) for time in times if time <= near + _DAY_S), None)
    except ValueError:
        return None
