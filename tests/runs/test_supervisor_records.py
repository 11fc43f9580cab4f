"""The parts of a batch log, by the supervisor's events."""

import json

from slurmddp.runs.layout import RunDir
from slurmddp.runs.supervisor_records import log_parts, read_supervision


def events(tmp_path, *rows):
    run = RunDir(tmp_path)
    run.logs.mkdir()
    for time, (kind, attempt, fields) in enumerate(rows, start=1):
        head = {"time": float(time), "event": kind, "job": "17", "attempt": attempt, "rank": None, "host": "n1"}
        with run.events.open("a") as file:
            file.write(json.dumps(head | fields) + "\n")
    return run, read_supervision(run, "17")


def start(attempt, offset=0):
    return "attempt_start", attempt, {"nodes": "n1", "log_offset": offset, "allocated": None}


def test_a_log_is_parted_where_attempts_began(tmp_path):
    _, found = events(tmp_path, start("0.0"), start("0.1", 500))
    parts = log_parts(found)
    assert (parts["0.0"].begin, parts["0.0"].end, parts["0.1"].begin) == (0, 500, 500)
