"""What stands around a failure and is not its cause: words of launchers, trackers and children behind it, and advice.

Pure. A launcher says how a rank ended: `rank_exits` reads that from all lines.
"""

import re
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Final

from slurmddp.diagnose.line_meanings import CLOSING, find_meaning, is_prose
from slurmddp.diagnose.log_reader import LogLine

HEADER: Final = "Traceback (most recent call last):"
LINKS: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_MOST_LINES: Final = 60
"""Lines of a traceback of a launcher, or of a child whose parent has died."""
_LAUNCHER_FRAME: Final = re.compile(
    r"\s*File \"[^\"]*"
    r"(?:/torch/distributed/(?:run|launch|launcher/|elastic/)|/accelerate/commands/|/deepspeed/launcher/|/ray/)"
)
_LAUNCHER_ERROR: Final = re.compile(r"\S*(?:ChildFailedError|CalledProcessError|SignalException|TrainingFailedError)\b")
_CHILD_FRAME: Final = re.compile(
    r"\s*File \"(?:<string>|[^\"]*(?:/multiprocessing/\w+|/threading|/shutil|/torch/utils/data/_utils/\w+)\.py)\""
)
_CHILD_ERROR: Final = re.compile(
    r"EOFError|\S*UnpicklingError|FileNotFoundError|BrokenPipeError|Connection\w+Error|_pickle\.|"
    r"OSError: \[Errno (?:9|16|39)\] |ValueError: semaphore or lock released"
)
_WARNING: Final = re.compile(r"\bWARN(?:ING)?\b")
_FRAME: Final = re.compile(r"\s*File \"")
_EXCEPTION: Final = re.compile(r"[\w.]*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b|_pickle\.")
_IGNORED_PIPE: Final = re.compile(r"BrokenPipeError: \[Errno 32\]")


def drop_tracebacks(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines without tracebacks of launchers, of children whose parent has died, and of warnings."""
    dropped: set[int] = set()
    for index, line in enumerate(lines):
        if index not in dropped and line.text.endswith(HEADER):
            dropped |= _find_warned(lines, index) or _find_teardown(lines, index)
        elif line.text.startswith("Exception ignored in: <_io.") and _IGNORED_PIPE.match(_text(lines, index + 1)):
            dropped |= {index, index + 1}
    return [line for index, line in enumerate(lines) if index not in dropped]


def drop_teardown(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines without those tracebacks, without the closing words of any program, and without advice."""
    return [line for line in drop_tracebacks(lines) if not (is_prose(line.text) or find_meaning(line.text) & CLOSING)]


def _text(lines: Sequence[LogLine], index: int) -> str:
    return lines[index].text if 0 <= index < len(lines) else ""


def _find_warned(lines: Sequence[LogLine], head: int) -> set[int]:
    """Return the lines of a traceback that a logger reports as a warning: its program went on; none of another one."""
    behind = takewhile(lambda index: _WARNING.search(lines[index].prefix), range(head, len(lines)))
    return set(islice(behind, _MOST_LINES))


def _find_teardown(lines: Sequence[LogLine], head: int) -> set[int]:
    """Return the lines of a traceback of a launcher, or of a child that its dead parent left; none of another one.

    Other processes may print between them.
    """
    frames: list[str] = []
    found = {head}
    for index in range(head + 1, min(head + _MOST_LINES, len(lines))):
        text = lines[index].text
        if text.startswith(" "):
            frames += [text] if _FRAME.match(text) else []
            found.add(index)
        elif _EXCEPTION.match(text) or text.endswith(HEADER):
            of_launcher = any(map(_LAUNCHER_FRAME.match, frames)) and _LAUNCHER_ERROR.match(text)
            of_child = frames and all(map(_CHILD_FRAME.match, frames)) and _CHILD_ERROR.match(text)
            found |= {index, *(at for at in (head - 1, index + 1) if _text(lines, at).startswith(LINKS))}
            return found if of_launcher or of_child else set()
    return set()
