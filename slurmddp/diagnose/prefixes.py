"""What stands before each line of an output: labels of launchers, timestamps, hosts, names of loggers.

Their forms are in `prefixes.toml`. A prefix is found by its repetition: nearly all lines begin with it, or the header
of a traceback and the line below.
"""

import re
import tomllib
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from slurmddp.diagnose.line_meanings import HEADER, means
from slurmddp.diagnose.log_reader import LogLine

REPEATED_SHARE: Final = 0.9  # a prefix stands before more than this share of the lines
SAMPLE: Final = 2000  # so many lines are looked at to find a prefix
_FEWEST_LINES: Final = 4
_MOST_PREFIXES: Final = 6
_FORMS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_TIME: Final = re.compile(_FORMS["time"])
_RANK_LABEL, _RANK_IN_PREFIX, _RAY_COUNT = (re.compile(_FORMS[name]) for name in ("label", "rank", "repeated"))
_CLEAR_KINDS, _OTHER_KINDS = (
    tuple(re.compile(re.sub(r"\{(time|word)\}", lambda it: _FORMS[it[1]], form)) for form in _FORMS[name].values())
    for name in ("clear", "other")
)
"""What a prefix is made of, each for the beginning of a line."""


def strip_prefixes(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines of one file without what stands before them; ranks that a prefix names are set."""
    indent = min((len(line.text) - len(line.text.lstrip()) for line in lines), default=0)
    found = [line._replace(text=_RAY_COUNT.sub("", line.text[indent:])) for line in lines]
    for _ in range(_MOST_PREFIXES):
        some = (line.text for line in found[:: max(1, len(found) // SAMPLE)])
        sample = [text for text in some if not means(text, "slurm", "closing")]
        kinds = _CLEAR_KINDS if len(sample) < _FEWEST_LINES else (*_CLEAR_KINDS, *_OTHER_KINDS)
        needed = max(1.0, REPEATED_SHARE * len(sample))
        kind = next((kind for kind in kinds if sum(1 for text in sample if kind.match(text)) >= needed), None)
        if kind is None:
            break
        found = [_strip(line, kind) for line in found]
    return [_strip(line, _RANK_LABEL) for line in _strip_around_tracebacks(found)]


def drop_times(text: str) -> str:
    """Return a text without timestamps."""
    return _TIME.sub("", text) if text.count(":") > 1 else text  # the pattern is slow


def _strip_around_tracebacks(lines: Sequence[LogLine]) -> list[LogLine]:
    """Remove prefixes that the header of a traceback and the line below it share."""
    shapes: list[str] = []
    for line, below in pairwise(lines):
        prefix = line.text.removesuffix(HEADER)
        if prefix and prefix != line.text and prefix.strip():
            shape = re.sub(r"\\?\d+", r"\\d+", re.escape(prefix))
            if re.match(shape, below.text):
                shapes.append(shape)
    for shape in islice(dict.fromkeys(shapes), 64):  # one for each node, say
        lines = [_strip(line, re.compile(shape)) for line in lines]
    return list(lines)


def _strip(line: LogLine, prefix: re.Pattern[str]) -> LogLine:
    found = prefix.match(line.text)
    groups = found.groupdict() if found else {}
    if not found or (found.end() == len(line.text) and not groups.get("rank")):
        return line
    in_prefix = _RANK_IN_PREFIX.search(found[0])
    named = groups.get("rank") or (in_prefix and next(filter(None, in_prefix.groups()), None))
    host = groups.get("host") or ""
    return line._replace(
        text=line.text[found.end() :],
        prefix=line.prefix + found[0],
        rank=int(named) if named else line.rank,
        host=host if re.search(r"\d", host) else line.host,  # a word without a number may be that of a program
    )
