"""What a running attempt does: it trains, has slowed down, or is stuck. Reads the ranks' outputs."""

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from slurmddp.diagnose.log_reader import make_evidence, read_lines
from slurmddp.diagnose.rule_types import Diagnosis
from slurmddp.runs.history import Event
from slurmddp.text import format_duration

STUCK_S: Final = 300.0
"""Without a sign of progress for so long, and for ten times as long as usual, an attempt is stuck: loading data,
compiling and evaluating take minutes."""
_STUCK_PACES: Final = 10
_SLOW: Final = 3.0
"""An attempt has slowed down if its last steps take so many times as long as the others."""
_LEAST_PACES: Final = 12
"""So many records of steps are needed to tell."""
_SHOWN_RANKS: Final = 3
_TAIL_BYTES: Final = 2**14


def describe_activity(events: Sequence[Event], folder: Path) -> Diagnosis:
    """Return what an attempt does, by its events, or the last of them, and by when its ranks printed last.

    The cause is `running`, `slow` or `stuck`.
    """
    now, steps = time.time(), [event for event in events if event.kind == "metrics" and event.count("step")]
    printed = {}
    with suppress(OSError):
        for path in folder.glob("*.out"):
            if (state := path.stat()).st_size:
                printed[path] = state.st_mtime
    signs = [event.time for event in events] + list(printed.values())
    quiet_s = max(0.0, now - max(signs, default=now))
    usual_s = statistics.median([after.time - before.time for before, after in pairwise(steps)] or [0.0])
    if quiet_s > max(STUCK_S, _STUCK_PACES * usual_s):
        what = f"{_describe_steps(steps, now)}, and no rank has printed anything for {format_duration(quiet_s)}"
        silent = sorted(printed, key=lambda path: printed[path])[:_SHOWN_RANKS]  # longest
        lines = ([line for line in read_lines(path, head=0, tail=_TAIL_BYTES) if line.text.strip()] for path in silent)
        evidence = tuple(make_evidence(own[-1]) for own in lines if own)
        return Diagnosis(cause="stuck", what=f"it seems to be stuck: {what}", evidence=evidence)
    if not steps:
        silence = f"; a rank printed last {format_duration(quiet_s)} ago" if printed else ""
        return Diagnosis(cause="running", what=f"no step is on record{silence}")
    taken = [
        (after.time - before.time, after.count("step") - before.count("step")) for before, after in pairwise(steps)
    ]
    paces = [seconds / number for seconds, number in taken if number > 0 and seconds > 0]  # seconds a step
    recent, before = paces[-len(paces) // 4 :], paces[: -len(paces) // 4]
    if len(paces) >= _LEAST_PACES and statistics.median(recent) > _SLOW * statistics.median(before):
        slow, usual = (f"{1 / statistics.median(part):.3g}" for part in (recent, before))
        return Diagnosis(cause="slow", what=f"it has slowed down to {slow} steps a second, from {usual}")
    return Diagnosis(cause="running", what=f"it trains: {_describe_steps(steps, now)}")


def _describe_steps(steps: Sequence[Event], now: float) -> str:
    if not steps:
        return "no step is on record"
    last = steps[-1]
    total = f"/{last.count('total')}" if last.count("total") else ""
    return f"step {last.count('step')}{total} was {format_duration(max(0.0, now - last.time))} ago"
