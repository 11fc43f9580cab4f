"""Reads exit records: the file `<rank>.end` of each rank, and the record that decides about the attempt.

A record is one line, `<status> <reason>`; the reason of a failure begins with `rank <r> on <host>: `. A line without
a line end was cut off and does not count. The batch script leaves a record too when a set-up line fails.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.exit_codes import DONE, FAILED, FENCED, RETRYABLE, STOPPED
from slurmddp.outcome import Outcome, kind_of_status
from slurmddp.runs.files import modification_time, open_or_empty

_FILE: Final = re.compile(r"(\d{1,6})\.end", re.ASCII)
"""A rank's record; a job has fewer than a million ranks."""
_LINE: Final = re.compile(r"(\d{1,3}) (?:rank \d+ on (\S+): )?(.*)", re.ASCII)
NO_RANK: Final = -1
_PRECEDENCE: Final = (FENCED, FAILED, RETRYABLE)


class ExitRecord(NamedTuple):
    """How one rank ended, by its own record; or how a set-up line of the batch script failed."""

    rank: int
    """NO_RANK for a set-up line."""
    status: int
    """Of `slurmddp.exit_codes`; of a set-up line, its own."""
    host: str
    """Empty in the record of a good end."""
    reason: str
    """Without rank and host."""
    path: Path
    time: float
    """When its error file was written, or else the record, in seconds since 1970, by the file system's clock."""

    @property
    def failed(self) -> bool:
        """Whether the rank failed."""
        return self.status not in (DONE, STOPPED)

    @property
    def text(self) -> str:
        """The reason with rank and host."""
        return f"rank {self.rank} on {self.host}: {self.reason}" if self.host else self.reason

    @property
    def outcome(self) -> Outcome:
        """What the rank has come to."""
        return Outcome(kind=kind_of_status(self.status), status=self.status, reason=self.text, time=self.time)

    @property
    def output(self) -> Path:
        """The file with the rank's output."""
        return self.path.with_suffix(".out")


def record_line(rank: int, host: str, status: int, reason: str) -> str:
    """Return the text of a record, with its end."""
    return f"{status} {reason if status == DONE else f'rank {rank} on {host}: {reason}'}\n"


def read_record(path: Path, rank: int) -> "ExitRecord | None":
    """Return one record, of a rank or of a set-up line that failed; None when the file is missing or torn."""
    with suppress(OSError), open_or_empty(path) as file:
        text = file.read().decode("utf-8", "replace")
        if (match := _LINE.match(text)) and "\n" in text:
            host, reason, time = match[2] or "", match[3].strip(), os.fstat(file.fileno()).st_mtime
            record = ExitRecord(rank=rank, status=int(match[1]), host=host, reason=reason, path=path, time=time)
            error = modification_time(path.with_suffix(".error.json")) if record.failed else None
            return record._replace(time=min(time, error or time))
    return None


def read_records(folder: Path) -> list[ExitRecord]:
    """Return the records of an attempt, the oldest first."""
    found: list[ExitRecord] = []
    with suppress(OSError):
        named = [(path, name) for path in folder.iterdir() if (name := _FILE.fullmatch(path.name))]
        found = [record for path, name in named if (record := read_record(path, int(name[1])))]
    return sorted(found, key=lambda record: (record.time, record.rank))


def decisive_record(records: Iterable[ExitRecord]) -> "ExitRecord | None":
    """Return the record that decides about an attempt; None when there is none with a known status.

    Only rank 0 records, after the last barrier, that the work is done (0) or all ranks were told to stop (75). Else
    the oldest record with 78 decides, then with 77, then with 76: a failure of the program comes before the failures
    of ranks that lost their peer.
    """
    found = list(records)
    for record in found:
        if record.rank == 0 and not record.failed:
            return record
    return next((record for status in _PRECEDENCE for record in found if record.status == status), None)
