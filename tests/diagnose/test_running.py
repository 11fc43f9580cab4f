"""What a running attempt does, by its files."""

import time

import pytest

from slurmddp.diagnose.running import describe_activity
from slurmddp.runs.files import append_record
from slurmddp.runs.history import AttemptEvents, read_outline
from slurmddp.runs.layout import RunDir


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return the folder of an attempt whose two ranks have printed just now."""
    monkeypatch.chdir(tmp_path)
    made = RunDir(tmp_path / "jobs" / "train")
    made.create()
    for rank in (0, 1):
        made.rank_log("17", "0.0", rank).parent.mkdir(parents=True, exist_ok=True)
        made.rank_log("17", "0.0", rank).write_text(f"rank {rank} begins\nloading part {rank}\n\n")
    return made


def activity(run):
    events = read_outline(run).events
    return describe_activity(AttemptEvents(events), run.attempt("17", "0.0"))


def log_steps(run, times):
    for step, at in enumerate(times, start=1):
        head = {"time": at, "event": "metrics", "job": "17", "attempt": "0.0", "rank": 0, "host": "n1"}
        append_record(run.events, {**head, "step": 10 * step, "total": 1000, "values": {}})


def test_steps_that_come_are_a_training(run):
    log_steps(run, [time.time() - 40 + 2 * number for number in range(20)])
    found = activity(run)
    assert (found.cause, found.evidence) == ("running", ())
    assert found.what in ("it trains: step 200/1000 was 2s ago", "it trains: step 200/1000 was 3s ago")


def test_steps_that_take_much_longer_than_before_are_told_with_both_paces(run):
    quick = [time.time() - 600 + 2 * number for number in range(40)]
    log_steps(run, [*quick, *(quick[-1] + 20 * number for number in range(1, 15))])
    found = activity(run)
    assert (found.cause, found.what) == ("slow", "it has slowed down to 0.5 steps a second, from 5")


def test_without_steps_the_last_line_counts(run):
    assert activity(run).what.startswith("no step is on record; a rank printed last ")
