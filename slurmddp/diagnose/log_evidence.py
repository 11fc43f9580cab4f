"""A job that is not ours: whatever its output says. Reads the files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from slurmddp.diagnose.evidence import Scene, abnormal, modified, of_lines, of_tracebacks
from slurmddp.diagnose.log_reader import Raw, labelled, read
from slurmddp.diagnose.model import Sighting
from slurmddp.diagnose.rank_exits import endings
from slurmddp.diagnose.tracebacks import ordinary

CLOSING_LINES: Final = 3
"""So many may a script of one's own print after its step."""
_NUMBERS: Final = re.compile(r"[\d.]+")


def scene(paths: Sequence[Path]) -> Scene:
    """Return what is left of a job, by its output and standard error: one file, or two."""
    files = [labelled(read(path)) for path in dict.fromkeys(paths)]
    lines = [line for file in files for line in file]
    ranks = sorted({line.rank for line in lines if line.rank is not None})
    sightings = [seen for path, file in zip(dict.fromkeys(paths), files, strict=True) for seen in _of_file(path, file)]
    return Scene(
        sightings=tuple(sightings),
        endings=tuple(endings(lines)),
        world=ranks[-1] + 1 if ranks else 0,
        abnormal=abnormal(lines),
        went_on=_went_on(lines),
    )


def _went_on(lines: Sequence[Raw]) -> bool:
    """Tell whether more came after the last end than a script's closing words, or lines of one kind, as of two starts.

    srun tells of an end before it has passed on all that its tasks had printed.
    """
    last = max((index for index, line in enumerate(lines) if endings([line])), default=len(lines))
    before, after = ([_shape(line.text) for line in ordinary(part)] for part in (lines[:last], lines[last:]))
    return len(after) > CLOSING_LINES or len(set(after)) < len(after) or not set(before).isdisjoint(after)


def _shape(text: str) -> str:
    """Return a line without its numbers: a program that tells of its steps prints lines of one shape."""
    return _NUMBERS.sub("0", text)


def _of_file(path: Path, lines: Sequence[Raw]) -> list[Sighting]:
    """Read the file as its ranks wrote it, each by itself; what has no label is of nobody."""
    about = modified(path) or 0.0
    found: list[Sighting] = []
    for rank in dict.fromkeys(line.rank for line in lines):
        own = [line for line in lines if line.rank == rank]
        found += of_tracebacks(own, rank=rank, time=None)
    return [*found, *of_lines(lines, about=about, rank=None)]
