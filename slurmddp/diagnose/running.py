"""What a running attempt does: it trains, has slowed down, or hangs. Reads its events."""

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

from slurmddp.diagnose.rule_types import Diagnosis
from slurmddp.runs.history import AttemptEvents
from slurmddp.text import format_duration, mask_secrets

_SLOW: Final = 3.0  # an attempt has slowed down if its last steps take so many times as long as the others
_LEAST_PACES: Final = 12  # so many records of steps are needed to tell


def describe_activity(attempt: AttemptEvents, folder: Path) -> Diagnosis:
    """Return what an attempt does, by its events, or by when its ranks printed last.

    The cause is `running`, `slow` or `hanging`.
    """
    now, steps = time.time(), [event for event in attempt.all("metrics") if event.count("step")]
    if attempt.hang:
        quiet_s = max(0.0, now - attempt.hang.time) + (attempt.hang.number("stalled_s") or 0)
        what = f"it makes no progress for {format_duration(quiet_s)}: {mask_secrets(attempt.hang.text('reason'))}"
        return Diagnosis(cause="hanging", what=what, sure="likely")
    if not steps:
        printed = [state.st_mtime for path in folder.glob("*.out") if (state := path.stat()).st_size]
        silence = f"; a rank printed last {format_duration(max(0.0, now - max(printed)))} ago" if printed else ""
        return Diagnosis(cause="running", what=f"no step is on record{silence}")
    taken = [(two.time - one.time, two.count("step") - one.count("step")) for one, two in pairwise(steps)]
    paces = [seconds / number for seconds, number in taken if number > 0 and seconds > 0]  # seconds a step
    recent, before = paces[-len(paces) // 4 :], paces[: -len(paces) // 4]
    if len(paces) >= _LEAST_PACES and statistics.median(recent) > _SLOW * statistics.median(before):
        slow, usual = (f"{1 / statistics.median(part):.3g}" for part in (recent, before))
        return Diagnosis(cause="slow", what=f"it has slowed down to {slow} steps a second, from {usual}")
    last = steps[-1]
    total = f"/{last.count('total')}" if last.count("total") else ""
    what = f"it trains: step {last.count('step')}{total} was {format_duration(max(0.0, now - last.time))} ago"
    return Diagnosis(cause="running", what=what)
