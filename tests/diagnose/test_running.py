"""What a running attempt does, by its files."""

import os
import time

import pytest

from slurmddp.diagnose import running
from slurmddp.diagnose.running import describe_activity
from slurmddp.runs.files import append_record
from slurmddp.runs.history import read_outline
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
    return describe_activity(read_outline(run).events, run.attempt("17", "0.0"))


def log_steps(run, times):
    for step, at in enumerate(times, start=1):
        head = {"time": at, "event": "metrics", "job": "17", "attempt": "0.0", "rank": 0, "host": "n1"}
        append_record(run.events, {**head, "step": 10 * step, "total": 1000, "values": {}})


def age_outputs(run, age_s):
    for path in run.attempt("17", "0.0").iterdir():
        os.utime(path, (time.time() - age_s, time.time() - age_s))


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


def test_neither_a_step_nor_a_line_for_long_is_stuck_and_the_last_lines_are_shown(run):
    log_steps(run, [time.time() - 2000 + 2 * number for number in range(20)])
    age_outputs(run, running.STUCK_S + 60)
    found = activity(run)
    assert found.cause == "stuck" and "step 200/1000 was 32m" in found.what and "printed anything for 6m" in found.what
    assert [line.text for line in found.evidence] == ["loading part 0", "loading part 1"]


def test_a_training_that_logs_rarely_is_not_stuck(run):
    log_steps(run, [time.time() - 1800 + 200 * number for number in range(5)])
    age_outputs(run, 900)
    assert activity(run).cause == "running"


def test_without_steps_the_last_line_counts(run):
    assert activity(run).what.startswith("no step is on record; a rank printed last ")
