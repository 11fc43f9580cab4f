"""Which lines look like errors. Pure; what they mean is for `slurmddp.diagnose` to say."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from slurmddp.logs.listing import Line

_WRONG: Final = re.compile(
    rb"\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal|CRITICAL|Traceback|Killed|Aborted|oom.kill|Out of memory|out of memory|"
    rb"Segmentation fault|Bus error|core dumped|[Cc]ommand not found|No such file or directory|Permission denied|"
    rb"Connection (?:reset|closed|refused)|Broken pipe|[Tt]imed out|CANCELLED|Stale file handle)\b"
    rb"|[A-Za-z](?:Error|Exception)\b(?! *=)|^(?:\[rank\d+\]:)?\s?\[?[EF]\d{4} \d\d:|NCCL WARN|slurmddp: .* status [1-9]"
)
_OURS: Final = re.compile(rb"^(?:\[rank\d+\]:|\s*\d+:)? ?")
_TRACEBACK: Final = re.compile(rb"Traceback \(most recent call last\):|  \+ Exception Group Traceback")


def wrong(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines that look like errors, and whole tracebacks."""
    inside: set[Path] = set()
    for line in lines:
        path = line.source.path
        if path in inside:
            yield line
            if not _goes_on(line.text):
                inside.discard(path)
        elif _WRONG.search(line.text):
            yield line
            if _TRACEBACK.search(line.text):
                inside.add(path)


def _goes_on(text: bytes) -> bool:
    """Tell whether a traceback's next line follows: its last one is the first that is not indented."""
    own = _OURS.sub(b"", text, count=1) if text.startswith(b"[rank") else text
    return own.startswith((b" ", b"\t")) or not own.strip()
