"""Python's tracebacks in a log: which exceptions they name, and which of them ended a program. Pure."""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise, takewhile
from typing import Final

from slurmddp.diagnose.line_meanings import HEADER, LAST_TOLD, LINKS, MOST_KEPT, drop_teardown, find_meanings, means
from slurmddp.diagnose.log_reader import LogLine

_EXCEPTION = re.compile(r"(?:[A-Za-z_][\w.]*)(?:: .*|:)?$")
_USUAL_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)(?::|$)")
_MOST_LINES: Final = 300  # lines of one traceback; Python itself shortens that of a deep recursion
_MOST_FRAME_LINES: Final = 4  # so many may stand between a frame and the exception: its source, and marks below it
_BROKEN_AT: Final = 55  # rich breaks a message at a blank near the terminal's width: a shorter line is its last
_MOST_MESSAGE_LINES: Final = 4
_IGNORED: Final = ("Exception ignored ", "Error in atexit._run_exitfuncs:", "--- Logging error ---")
_NUMBERS: Final = re.compile(r"[\d.]+")
_VALUE: Final = re.compile(r"\d{1,18}(?:\.\d{1,18})?")
_FEW: Final = 3
_RISES: Final = 5  # a number that counts something rises so many times as often as it falls
_CLOCK: Final = re.compile(
    r"\d{1,18}(?::\d\d){1,3}[.,\d]{0,9}|(?:\d{1,9}[dhms]){1,4}\b|"
    r"\d[.\d]{0,18} ?(?:[mh]?s|secs?|seconds?|min(?:ute)?s?|h(?:ours?)?|s/it|it/s)\b"
)
"""A time of day, how long something took, or how fast it is: it changes also where nothing goes on."""
MOST_AFTER_FATAL: Final = 12  # so many ordinary lines may follow a fatal exception, because other ranks still print

OUTLIVED_LINES: Final = 100  # if more ordinary lines than this follow a line, the program did not end there


@dataclass(frozen=True)
class Traceback:
    """One traceback, with those of the exceptions that led to it."""

    exceptions: tuple[LogLine, ...]  # the last line of each exception, the first one raised at the head
    begin: int  # the index of its header in the log; of the exception if it has none
    end: int  # the index of the line that follows it
    own_frame: LogLine | None = None  # where the last exception left the program's own code; None if that is not known
    lines_after: int = 0  # how many ordinary lines came after it: a program that goes on has caught the exception


def drop_ignored(lines: Sequence[LogLine], heads: tuple[str, ...] = _IGNORED) -> Sequence[LogLine]:
    """Return the lines without the tracebacks of exceptions that Python ignored, of destructors and at the exit."""
    kept: list[LogLine] = []
    end = -1
    for index, line in enumerate(lines):
        if index > end and line.text.startswith(heads):
            below = range(index, min(index + _MOST_FRAME_LINES, len(lines)))
            head = next((at for at in below if lines[at].text.endswith(HEADER)), None)
            end = _end_of_logging(lines, index if head is None else _find_exception(lines, head + 1) or head)
        elif index > end:
            kept.append(line)
    return kept


def _end_of_logging(lines: Sequence[LogLine], exception: int) -> int:
    """Return the last line of what `logging` prints below an exception of its own; else that of the exception."""
    if not lines[exception + 1 : exception + 2] or not lines[exception + 1].text.startswith("Call stack:"):
        return exception
    return max(takewhile(lambda at: means(lines[at].text, "of logging"), range(exception + 1, len(lines))))


def drop_noise(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines without what threads raise, and torch, NCCL and launchers say of an abort, at a good end."""
    calm = drop_ignored(lines, (*_IGNORED, "Exception in thread "))
    told = [at for at, line in enumerate(calm) if is_ordinary(line.text) and not means(line.text, "noise")]
    end = next((calm[at].at for at in told[-LAST_TOLD:] if tells_good_end(calm, at)), math.inf)
    is_noisy = len(calm) < len(lines) or any(means(one.text, "noise") for one in lines if one.at > end)
    if end == math.inf or not is_noisy:
        return list(lines)
    return [one for one in drop_teardown(calm) if one.at <= end or not means(one.text, "noise", "launcher end")]


def tells_good_end(lines: Sequence[LogLine], index: int) -> bool:
    """Return whether a line tells of a good end, also by one word if lines of one shape, as of steps, are above it."""
    if not means(lines[index].text, "done"):
        return means(lines[index].text, "good end")
    return max(Counter(line_shape(line.text) for line in ordinary_lines(lines[:index])).values(), default=0) > _FEW


def find_tracebacks(lines: Sequence[LogLine]) -> list[Traceback]:
    """Return the tracebacks of one program, in the order in which they were printed."""
    found: list[Traceback] = []
    index, head, link = 0, 0, ""
    while index < len(lines):
        text = lines[index].text
        meant = find_meanings(text)
        if text.endswith(HEADER):
            link = text if text.startswith("Original ") else link
            end = _find_exception(lines, index + 1)
            if end is not None:
                before = found.pop() if link and found else None
                if before and link.startswith(LINKS[1]) and _is_of_handler(lines, head, end):
                    found.append(replace(before, end=end + 1))
                else:
                    chain = (*(before.exceptions if before else ()), join_message(lines, end))
                    found.append(Traceback(chain, index, end + 1, find_own_frame(lines, end)))
                index, head, link = end, index + 1, ""
        elif "rich end" in meant and index + 1 < len(lines) and names_exception(lines[index + 1].text):
            found.append(Traceback((join_message(lines, index + 1),), index + 1, index + 2))
        elif "headless" in meant:
            found.append(Traceback((lines[index],), index, index + 1))
        elif _follows_frame(lines, index) and (names_exception(text) or "dotted" in meant):
            found.append(Traceback((join_message(lines, index),), index, index + 1, find_own_frame(lines, index)))
        elif text.startswith(LINKS):
            link = text
        index += 1
    return found


def _is_of_handler(lines: Sequence[LogLine], head: int, exception: int) -> bool:
    """Return whether an exception is a mistake in the handler of the one before, whose first frame is at `head`.

    It was raised in the same function, and not by `raise`.
    """
    above = [line.text.strip(" ^~") for line in lines[max(0, exception - _MOST_FRAME_LINES) : exception]]
    frame, *source = next((above[at:] for at in reversed(range(len(above))) if means(above[at], "frame")), [""])
    is_same = line_shape(frame) == line_shape(lines[head].text.strip())
    return is_same and any(source) and not any(text.startswith("raise") for text in source)


def _follows_frame(lines: Sequence[LogLine], index: int) -> bool:
    """Return whether the frames of a traceback stand above a line, though its header was cut off."""
    above = lines[max(0, index - _MOST_FRAME_LINES) : index]
    return bool(above) and above[-1].text.startswith(" ") and any(means(line.text, "frame") for line in above)


def join_message(lines: Sequence[LogLine], index: int) -> LogLine:
    """Return the line of an exception with those below it that belong to its message.

    The message goes on in indented lines where it ends with a colon, in sentences that are indented a little, and in
    lines of any kind where rich has broken it.
    """
    line = lines[index]
    may_break = len(line.text) >= _BROKEN_AT or line.text[-1:].isalnum()
    is_broken = may_break and index > 0 and means(lines[index - 1].text, "rich end")
    for below in lines[index + 1 : index + 1 + _MOST_MESSAGE_LINES]:
        text = below.text
        is_indented = text.startswith("  ") and line is not lines[index]
        goes_on = line.text.endswith(":") or is_indented or is_broken or means(text, "sentence")
        if not goes_on or not text or text.endswith(HEADER) or means(text, "system") or names_exception(text):
            break
        line = line._replace(text=f"{line.text} {text.strip()}")
        is_broken = is_broken and len(text) >= _BROKEN_AT
    return line


def _find_exception(lines: Sequence[LogLine], start: int) -> int | None:
    """Return the index of the exception's line: the first that begins with a usual name of an exception.

    Launchers and other ranks may have printed in between. Without a usual name, the first that could be one counts.
    """
    other = None
    for index in range(start, min(start + _MOST_LINES, len(lines))):
        text = lines[index].text
        if text.endswith(HEADER):
            break
        if names_exception(text):
            return index
        if other is None and _EXCEPTION.match(text) and not means(text, "system"):
            other = index
    return other


def find_fatal_tracebacks(lines: Sequence[LogLine]) -> list[Traceback]:
    """Return the tracebacks that ended a program: after them come only other failures and a few ordinary lines.

    The last one may have more lines after it if they differ: a program may print a summary before it ends. Lines of
    one shape, as of steps, say that it went on; but not if such a line stands within it: another process prints them.
    """
    found = find_tracebacks(lines)
    told = sorted({line.text for traceback in found for line in traceback.exceptions})
    ordinary = [is_ordinary(line.text) and not (names_exception(line.text) and _is_told(line, told)) for line in lines]
    after = count_from(ordinary)
    found = [replace(traceback, lines_after=after[traceback.end]) for traceback in found]
    was_interrupted = any(means(line.text, "signal") for last in found[-1:] for line in last.exceptions)
    if fatal := [one for one in found if was_interrupted or one.lines_after <= MOST_AFTER_FATAL]:
        return fatal
    late = [last for last in found[-1:] if last.lines_after <= OUTLIVED_LINES]
    within = {line_shape(line.text) for last in late for line in ordinary_lines(lines[last.begin : last.end - 1])}
    behind = {line_shape(line.text) for last in late for line in ordinary_lines(lines[last.end :])}
    return [last for last in late if len(behind) > last.lines_after / 2 or behind <= within]


def find_own_frame(lines: Sequence[LogLine], exception: int) -> LogLine | None:
    """Return the line of a traceback that names the program's own code last; None if all frames are of libraries."""
    above = reversed(lines[max(0, exception - _MOST_LINES) : exception])
    frames = takewhile(lambda line: not line.text.endswith(HEADER), above)
    return next((line for line in frames if means(line.text, "frame") and not means(line.text, "library")), None)


@lru_cache(maxsize=MOST_KEPT)
def line_shape(text: str) -> str:
    """Return a line with its numbers replaced: the lines about a program's steps have one shape."""
    return _NUMBERS.sub("0", text)


def _is_told(line: LogLine, exceptions: Sequence[str]) -> bool:
    """Return whether tracebacks of other ranks have this exception, or one that begins so; they are sorted."""
    told = exceptions[at] if (at := bisect_left(exceptions, line.text)) < len(exceptions) else ""
    return told.startswith(line.text) if line.text.endswith(":") else told == line.text


def count_from(flags: Sequence[bool]) -> list[int]:
    """Return for each index, and for the end, how many flags are set from it on: in one pass, for there are many."""
    return [*accumulate(reversed(flags), initial=0)][::-1]


def ordinary_lines(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines that neither launchers nor dying programs print."""
    return [line for line in lines if is_ordinary(line.text)]


def drop_waiting(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the lines of a job that Slurm ended without those of one shape in which no number counts up."""
    if not any(means(line.text, "slurm") for line in lines):
        return lines
    alike: dict[str, list[tuple[int, list[float]]]] = {}
    for index, line in enumerate(lines):
        if is_ordinary(line.text) and not names_exception(line.text):
            text = _CLOCK.sub("", line.text)
            alike.setdefault(line_shape(text), []).append((index, [*map(float, _VALUE.findall(text))]))
    waiting: set[int] = set()
    for same in (same for same in alike.values() if len(same) > MOST_AFTER_FATAL):
        steps = ((at, b - a) for (_, one), (_, two) in pairwise(same) for at, (a, b) in enumerate(zip(one, two)))  # noqa: B905
        changes = Counter((at, step > 0) for at, step in steps if step)
        counts_up = any(changes[at, True] > _RISES * changes[at, False] for at, _ in changes)
        waiting |= {index for (_, one), (index, two) in pairwise(same) if one == two or not counts_up}
    return [line for index, line in enumerate(lines) if index not in waiting]


def names_exception(text: str) -> bool:
    """Return whether a text begins with a usual name of an exception."""
    return _USUAL_EXCEPTION.match(text) is not None


@lru_cache(maxsize=MOST_KEPT)
def is_ordinary(text: str) -> bool:
    """Return whether neither a launcher nor a dying program prints such a line."""
    return bool(text) and not (text.startswith((" ", "\t", *LINKS)) or means(text, "system", "closing"))
