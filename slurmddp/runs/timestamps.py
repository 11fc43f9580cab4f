"""Reads when a line was printed, where the line has a timestamp. Pure.

Read are a date and a time of day near the line's beginning, as Python's logging and Slurm print them, and the
timestamps of glog, which torch and NCCL use: `[rank0]:[W1121 23:40:18.123456789 ...`. Without a zone it is this
machine's time.
"""

import re
from datetime import datetime
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


def read_timestamp(line: bytes, *, near: float) -> float | None:
    """Return when a line says that it was printed, in seconds since 1970; None when it does not say.

    A timestamp of glog has no year: it is in the last year in which it is at most a day after `near`.
    """
    found = _find(line)
    return _parse(found, near) if found else None


class TimestampReader:
    """Reads the timestamps of one file's lines, from the first to the last."""

    def __init__(self, *, since: float, until: float) -> None:
        """Accept times between `since` and `until`, in seconds since 1970; other dates in a line are data."""
        self._since, self._until = since - SLACK_S, until + SLACK_S
        self._text = b""  # many lines in a row have the same timestamp, which is parsed once
        self._time: float | None = None

    def read(self, line: bytes) -> float | None:
        """Return when a line says that it was printed; None when it does not say."""
        found = _find(line)
        if found is None:
            return None
        if found[0] != self._text:
            self._text, self._time = found[0], _parse(found, self._until)
        return self._time if self._time is not None and self._since <= self._time <= self._until else None


def _find(line: bytes) -> re.Match[bytes] | None:
    head = line[:HEAD_BYTES]
    return (_DATE.search(head) or _GLOG.search(head)) if b":" in head else None


def _parse(found: re.Match[bytes], near: float) -> float | None:
    """Return the time of a match; None for what is no date, as 2026-13-45."""
    try:
        if found.re is _DATE:
            return datetime.fromisoformat(found[0].decode().replace("/", "-")).timestamp()
        near = min(max(near, 0.0), _LATEST)
        year = datetime.fromtimestamp(near).astimezone().year
        parts = tuple(map(int, found.groups()[:5]))  # month to second
        times = (datetime(y, *parts).timestamp() for y in (year + 1, year, year - 1))  # type: ignore[arg-type]  # noqa: DTZ001 local time
        return next((time + float(b"0." + found[6]) for time in times if time <= near + _DAY_S), None)
    except ValueError:
        return None
