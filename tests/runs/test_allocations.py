"""The allocations of a run: of one without Slurm's answer, of a job that has just been started again, and cut ones."""

from datetime import datetime

import pytest

from slurmddp.runs.allocations import list_allocations
from slurmddp.runs.facts import read_run
from slurmddp.runs.history import Event, History
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo

EVENTS = (
    Event(15, "attempt_start", "7", "0.0", {"nodes": "n[1-2]", "allocated": 10.0}),
    Event(40, "restart", "7", "0.0", {"status": 76}),
    Event(50, "attempt_start", "7", "0.1", {"nodes": "n[1-2]"}),
    Event(100, "requeue", "7", "0.1", {"reason": "preempted"}),
)
AGAIN = Event(205, "attempt_start", "7", "1.0", {"nodes": "n1", "allocated": 200.0})


def count(run_dir, events, *, now=400.0, **slurm):
    """Return begin, end, nodes and the names of the attempts of each allocation."""
    named = [key for key in ("started", "ended", "submitted") if key in slurm]
    times = {key: datetime.fromtimestamp(slurm.pop(key)).astimezone() for key in named}
    answers = {"7": JobInfo(job_id="7", source="squeue", **times, **slurm)} if slurm else None
    run = read_run(RunDir(run_dir), answers, history=History(events))
    found = list_allocations(run, now=now)
    return [(one.begin, one.end, one.nodes, [attempt.name for attempt in one.attempts]) for one in found]


FIRST = (10, 100, 2, ["0.0", "0.1"])


def test_without_an_answer_of_slurm_each_start_counts_up_to_its_last_event(tmp_path):
    assert count(tmp_path, (*EVENTS, AGAIN)) == [FIRST, (200, 205, 1, ["1.0"])]


@pytest.mark.parametrize(
    ("slurm", "last"),
    [
        ({"state": "RUNNING", "started": 199.0}, (199, 400, 1)),
        ({"state": "TIMEOUT", "started": 199.0, "ended": 300.0}, (199, 300, 1)),
        ({"state": "RUNNING", "started": 199.0, "ended": 900.0, "nodes": "n[1-3]"}, (199, 400, 3)),
    ],
)
def test_of_the_newest_start_counts_what_slurm_says(tmp_path, slurm, last):
    assert count(tmp_path, (*EVENTS, AGAIN), **slurm) == [FIRST, (*last, ["1.0"])]


def test_a_start_counts_before_its_first_event_and_a_job_that_waits_has_no_nodes(tmp_path):
    again = count(tmp_path, EVENTS, state="RUNNING", started=200.0, nodes="n[1-2]")
    assert again == [FIRST, (200, 400, 2, [])]
    assert count(tmp_path, EVENTS, state="PENDING", started=500.0) == [FIRST]
    cancelled = Event(150, "cancel", "7", "0.1", {"by": "me"})
    assert count(tmp_path, (*EVENTS, cancelled), state="CANCELLED") == [FIRST]
    cancelled = Event(300, "cancel", "7", "1.0", {"by": "me"})  # after `scontrol requeue`, of which no event tells
    waited = {"state": "CANCELLED", "started": 300.0, "ended": 300.0}
    assert count(tmp_path, (*EVENTS, AGAIN, cancelled), **waited) == [FIRST, (200, 205, 1, ["1.0"])]


def test_a_start_without_a_record_of_its_end_lasts_until_slurm_has_put_the_job_back(tmp_path):
    """As a batch script that is killed with its supervisor, by a preemption."""
    start = Event(15, "attempt_start", "7", "0.0", {"nodes": "n1", "allocated": 10.0, "queued": 5.0})
    again = Event(205, "attempt_start", "7", "1.0", {"nodes": "n1", "allocated": 200.0, "queued": 150.0})
    assert count(tmp_path, (start, again)) == [(10, 150, 1, ["0.0"]), (200, 205, 1, ["1.0"])]
    assert count(tmp_path, (start,), state="PENDING", submitted=150.0) == [(10, 150, 1, ["0.0"])]
    assert count(tmp_path, (start,), state="RUNNING", started=200.0, submitted=150.0)[0] == (10, 150, 1, ["0.0"])
    ended = Event(140, "requeue", "7", "0.0", {"reason": "preempted"})
    assert count(tmp_path, (start, ended, again))[0] == (10, 150, 1, ["0.0"])
    late = Event(160, "checkpoint", "7", "0.0", {})  # a node that was cut off goes on
    assert count(tmp_path, (start, late, again))[0] == (10, 160, 1, ["0.0"])


def test_an_allocation_is_cut_where_that_of_the_next_job_begins(tmp_path):
    later = Event(90, "attempt_start", "8", "0.0", {"nodes": "n1", "allocated": 80.0})
    assert count(tmp_path, (*EVENTS, later)) == [(10, 80, 2, ["0.0", "0.1"]), (80, 90, 1, ["0.0"])]
