"""Events as the lines of `events.jsonl` have them, of job 7, attempt 0.0, rank 0 on n1."""

import json
from typing import Any

from slurmddp.runs.layout import RunDir

HEAD = {"job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}


def event(kind: str, time: float, **fields: Any) -> dict[str, Any]:
    """Return an event; `fields` may replace those of the head."""
    return {"time": time, "event": kind, **HEAD, **fields}


def write(run: RunDir, *lines: dict[str, Any]) -> None:
    """Write the events of a run, and nothing else."""
    run.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
