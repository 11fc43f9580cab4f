"""When a line was printed, where it says so itself. Pure.

Understood are a date and a time of day near the line's beginning, as Python's logging and Slurm print them, and the
stamps of glog, torch's and NCCL's: `[rank0]:[W1121 23:40:18.123456789 ...`. Without a zone it is this machine's
time.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

NEAR_BYTES: Final = 80
"""So far into a line a date is looked for."""
SLACK_S: Final = 60.0
"""Two machines' clocks may differ by this much."""

_DATE: Final = re.compile(
    rb"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_GLOG: Final = re.compile(rb"(?:\[rank\d+\]:)?\s?\[?[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})\b")


class Stamps:
    """Reads the times of one file's lines, from the first to the last."""

    def __init__(self, *, since: float, until: float) -> None:
        """Take times for printed when they lie between `since` and `until`, in seconds since 1970; others are data."""
        self._since, self._until = since - SLACK_S, until + SLACK_S
        self._year = datetime.fromtimestamp(until).astimezone().year
        self._moment, self._told = b"", 0.0

    def of(self, line: bytes) -> float | None:
        """Return when a line says that it was printed; None when it does not say."""
        head = line[:NEAR_BYTES]
        if b":" not in head:
            return None
        if match := _DATE.search(head):
            return self._plausible(match, self._dated)
        if match := _GLOG.match(head):
            return self._plausible(match, self._glog)
        return None

    def _plausible(self, match: re.Match[bytes], read: Callable[[re.Match[bytes]], float]) -> float | None:
        if match[0] != self._moment:
            try:
                self._moment, self._told = match[0], read(match)
            except ValueError:  # 2026-13-45
                return None
        return self._told if self._since <= self._told <= self._until else None

    def _dated(self, match: re.Match[bytes]) -> float:
        year, month, day, hour, minute, second = map(int, match.groups()[:6])
        moment = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 the zone follows
        if match[8]:
            zone = datetime.strptime(match[8].decode(), "%z").tzinfo
            moment = moment.replace(tzinfo=zone)
        return moment.timestamp() + _fraction(match[7])

    def _glog(self, match: re.Match[bytes]) -> float:
        """It has no year: the last in which the day was not yet to come."""
        month, day, hour, minute, second = map(int, match.groups()[:5])
        told = datetime(self._year, month, day, hour, minute, second).timestamp()  # noqa: DTZ001 local time
        if told > self._until:
            told = datetime(self._year - 1, month, day, hour, minute, second).timestamp()  # noqa: DTZ001 the same
        return told + _fraction(match[6])


def _fraction(digits: bytes | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0
