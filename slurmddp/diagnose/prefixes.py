"""What stands before each line of an output: labels of launchers, timestamps, hosts, names of loggers. Pure.

A prefix is found by its repetition: nearly all lines begin with it, or the header of a traceback and the line below.
"""

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Final

from slurmddp.diagnose.line_meanings import HEADER, means
from slurmddp.diagnose.log_reader import LogLine

REPEATED_SHARE: Final = 0.9  # a prefix stands before more than this share of the lines
SAMPLE: Final = 500  # so many lines are looked at to find a prefix
_FEWEST_LINES: Final = 4
_MOST_PREFIXES: Final = 6
TIME: Final = (
    r"[\[(]?"
    r"(?:\d{4}[-/.]\d\d[-/.]\d\d[T _]|\d\d[-/]\d\d(?:[-/]\d\d)?[ _]|\w{3} +\d{1,2} (?:\d{4} )?|"
    r"\d{1,2}/\w{3}/\d{4}[: ])?"
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?[\])]?"
)
_PROGRAMS: Final = r"srun|sbatch|slurm[\w-]+|torchrun|mpirun|bash|error|fatal|warning"
_EXCEPTION: Final = r"\w*(?:Error|Exception|Warning|Exit|Interrupt)"
_CLEAR_KINDS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{TIME}(?: ?[:,|] ?| |$)",
        r"\[\d+,(?P<rank>\d+)\]<\w+>: ?",  # mpirun --tag-output
        r"\((?=[^()]*\bpid=\d)[^()]*\) ?",  # Ray
        r"\[(?:rank|default)(?P<rank>\d+)\]:? ?",
        r"\[?[Rr]ank[ _:=]?(?P<rank>\d+)\]?[:|] ?",
    )
)
"""What a prefix is made of, each for the beginning of a line; the group `rank` names a rank."""
_OTHER_KINDS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[(?P<rank>\d{1,5})\]:? ?",
        r" *(?P<rank>\d{1,5}): ?",  # srun --label
        r"(?:std(?:err|out))(?: [FP])?[:| ] ?",
        r"(?P<host>[\w.-]+) [\w./@-]+\[\d+\]: ?",  # journald
        r"[\w.-]+ +\| ?",  # docker compose
        r"(?:INFO {5}|(?:DEBUG|ERROR) {4}|WARNING {2}|CRITICAL )",  # rich
        r"\[?(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\]?(?: *[:|-]+ ?| {1,2})",
        r"(?:pod|container)/\S+ ",
        r"\[(?:pod/)?[\w./-]+\] ",  # kubectl logs --prefix
        rf"(?!(?:{_PROGRAMS}|{_EXCEPTION}): )(?P<host>[A-Za-z\d][\w.-]*): ",  # pdsh, DeepSpeed
        r"[>|] ?",
    )
)
"""The same, of kinds that a short text may begin with by chance."""
_RAY_COUNT: Final = re.compile(r" \[repeated \d+x across cluster\](?: \(Ray .*)?$")
"""How Ray ends a line that several of its processes printed."""
_RANK_LABEL: Final = re.compile(r"\[(?:rank|default)(?P<rank>\d+)\]: ?")
_RANK_IN_PREFIX: Final = re.compile(r"\brank[ _:=]*(\d+)|\[\d+,(\d+)\]|\[default(\d+)\]", re.IGNORECASE)


def strip_prefixes(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines of one file without what stands before them; ranks that a prefix names are set."""
    indent = min((len(line.text) - len(line.text.lstrip()) for line in lines), default=0)
    found = [line._replace(text=_RAY_COUNT.sub("", line.text[indent:])) for line in lines]
    for _ in range(_MOST_PREFIXES):
        printed = [line.text for line in found if not means(line.text, "slurm", "closing")]
        sample = printed[:: max(1, len(printed) // SAMPLE)]
        kinds = _CLEAR_KINDS if len(sample) < _FEWEST_LINES else (*_CLEAR_KINDS, *_OTHER_KINDS)
        needed = max(1.0, REPEATED_SHARE * len(sample))
        kind = next((kind for kind in kinds if sum(1 for text in sample if kind.match(text)) >= needed), None)
        if kind is None:
            break
        found = [_strip(line, kind) for line in found]
    return [_strip(line, _RANK_LABEL) for line in _strip_around_tracebacks(found)]


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
