"""How a job ended by its supervisor's events, also where attempts of one job wrote at the same time."""

import json

import pytest

from slurmddp.runs.layout import RunDir
from slurmddp.runs.supervisor_records import job_outcome, log_parts, read_supervision


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


STORIES = {
    "done": ([start("0.0"), ("job_end", "0.0", {"status": 0, "reason": "done"})], 0),
    "goes on": ([start("0.0"), ("requeue", "0.0", {"reason": "x", "excluded": []})], None),
    "fenced": ([("fenced", "0.0", {"reason": "x"})], 78),
    "fenced, while a later attempt runs": ([start("1.0"), ("fenced", "0.0", {"reason": "x"})], None),
    "failed, while a later attempt runs": ([start("1.0"), ("job_end", "0.0", {"status": 77, "reason": "x"})], None),
}


@pytest.mark.parametrize("name", STORIES)
def test_how_a_job_ended(tmp_path, name):
    rows, status = STORIES[name]
    run, found = events(tmp_path, *rows)
    end = job_outcome(run, "17", found)
    assert (end and end.status) == status


def test_a_log_is_parted_where_attempts_began(tmp_path):
    _, found = events(tmp_path, start("0.0"), start("0.1", 500))
    parts = log_parts(found)
    assert (parts["0.0"].begin, parts["0.0"].end, parts["0.1"].begin) == (0, 500, 500)
