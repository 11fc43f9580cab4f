"""How ranks ended, by the messages of their launchers: srun, torchrun, mpirun, bash and slurmddp's own.

The forms of the messages are in `rank_exits.toml`.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from slurmddp.diagnose.line_meanings import is_prose
from slurmddp.diagnose.log_reader import LogLine, cut_around
from slurmddp.diagnose.rule_types import compile_regex, compile_set

_FORMS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_OF_A_RANK, _OF_ANY = (tuple(map(compile_regex, _FORMS[name])) for name in ("of a rank", "of any"))
_TELLS_END: Final = compile_set([*_FORMS["of a rank"], *_FORMS["of any"]])
_NOT_MEANT, _LAST_WORD, _PROMPT, _ROOT_CAUSE_FIELD = (
    compile_regex(_FORMS[name]) for name in ("not meant", "last word", "prompt", "root cause field")
)
_SIGNALS: Final = {number: name for name, number in _FORMS["signals"].items()}
_SIGNAL_WORDS: Final = _FORMS["words"]
_ROOT_CAUSE: Final = "Root Cause (first observed failure):"
_ROOT_CAUSE_LINES: Final = 20  # other ranks may print between them
_LAST_LINES: Final = 5  # a shell names a signal in one of so many lines at the end, below which are only its prompts
_SEARCHED_LINES: Final = 500  # so many are looked at to find them among lines of no letters, as the borders of tables
_LETTER: Final = re.compile(r"[^\W_]")
_ONE_FAILURE_S: Final = 3600.0  # the launchers of all nodes report a failure within it: ranks can wait half an hour
_SHELL_OFFSET: Final = 128  # a shell adds it to the number of the signal that ended a command


class RankExit(NamedTuple):
    """A rank or a task that its launcher saw fail."""

    line: LogLine
    number: int | None  # of the rank, or of the task if that is a whole node; None if it is not named
    host: str = ""
    signal: str = ""  # the name of the signal that ended it, or `out of memory`; empty if it exited by itself
    status: int | None = None
    is_node: bool = False  # whether `number` is that of a task that is a whole node
    time: float | None = None


def parse_rank_exits(
    lines: Sequence[LogLine], own: Sequence[LogLine] = (), *, tasks_are_nodes: bool = False
) -> list[RankExit]:
    """Return the exits that launchers report, torchrun's root causes first, else in the order of the lines.

    Each launcher reports the rank first that failed first; one that SIGTERM ended was ended with others. A shell's last
    word stands at the end of `own`, the lines without those of launchers; else at the end of all.
    """
    causes = [*_parse_root_causes(lines)]
    if times := [cause.time for cause in causes if cause.time is not None]:  # without failures long before the last
        recent = (cause for cause in causes if cause.time is not None and cause.time > max(times) - _ONE_FAILURE_S)
        causes = sorted(recent, key=lambda cause: cause.time or 0.0)
    others = (line for line in lines if not (causes and _ROOT_CAUSE_FIELD.match(line.text)))
    reported = (_parse_line(line, tasks_are_nodes=tasks_are_nodes) for line in others)
    found = [*causes, *filter(None, reported)]
    spoken = [line for line in (own or lines)[-_SEARCHED_LINES:] if _LETTER.search(line.text)][-_LAST_LINES:]
    last = next((line for line in reversed(spoken) if not _PROMPT.match(line.text)), None)
    if last and (match := _LAST_WORD.search(last.text.strip())):  # by a shell, also behind a progress bar
        found.append(RankExit(line=last, number=None, signal=_SIGNAL_WORDS[match["word"].lower()]))
    return sorted(found, key=lambda end: end.signal == "SIGTERM")


def _parse_line(line: LogLine, *, tasks_are_nodes: bool) -> RankExit | None:
    if not _TELLS_END.Match(line.text) or is_prose(line.text):
        return None
    if match := next((match for regex in _OF_A_RANK if (match := regex.match(line.text))), None):
        named = match.groupdict()
        host, task = named.get("host") or "", named.get("task")
        signal, status = _parse_end(**named)
        number = int(task or named["rank"])
        host = "" if "[" in host or "," in host else host  # srun may name several, as in gpu[01-02]
        is_node = tasks_are_nodes and task is not None
        return RankExit(line=line, number=number, host=host, signal=signal, status=status, is_node=is_node)
    if _NOT_MEANT.search(line.text):
        return None
    if match := next((match for regex in _OF_ANY if (match := regex.search(line.text))), None):
        shown = line._replace(text=cut_around(line.text, match.start()))
        return RankExit(line=shown, number=None, signal=_parse_end(**match.groupdict())[0])
    return None


def _parse_end(
    *, word: str | None = None, status: str | None = None, number: str | None = None, signal: str = "", **_: str | None
) -> tuple[str, int | None]:
    """Return the signal that ended a rank, or the status with which it exited by itself."""
    if status is not None:
        ended_by = _SIGNALS.get(int(status) - _SHELL_OFFSET, "")
        return ended_by, None if ended_by else int(status)
    text = (word or "").removesuffix(" (core dumped)")
    named = signal or _SIGNAL_WORDS.get(text.lower(), text)
    return _SIGNALS.get(int(number), f"signal {number}") if number else named, None


def _parse_root_causes(lines: Sequence[LogLine]) -> Iterator[RankExit]:
    """Yield the root cause in torchrun's summary of a failure: the first failure that it saw."""
    for index, line in enumerate(lines):
        if line.text.strip() == _ROOT_CAUSE:
            below = lines[index + 1 : index + 1 + _ROOT_CAUSE_LINES]
            matches = [match for one in below if (match := _ROOT_CAUSE_FIELD.match(one.text))]
            fields = {match["name"]: match["value"] for match in reversed(matches)}
            code = int(fields["exitcode"]) if re.fullmatch(r"-?\d{1,9}", fields.get("exitcode", "")) else 1
            time = None  # torchrun prints the local one
            with suppress(ValueError):
                time = datetime.strptime(fields.get("time", ""), "%Y-%m-%d_%H:%M:%S").astimezone().timestamp()
            shown = next((one for one in below if one.text.strip().startswith("exitcode")), line)
            number = int(fields["rank"]) if fields.get("rank", "").isdecimal() else None
            signal, status = (_SIGNALS.get(-code, f"signal {-code}"), None) if code < 0 else ("", code)
            host = fields.get("host", "")
            yield RankExit(line=shown, number=number, host=host, signal=signal, status=status, time=time)
