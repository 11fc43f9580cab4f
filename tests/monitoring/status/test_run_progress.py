"""A run's own files tell how far it is, and how a job of it ended where Slurm does not."""

import json
import os

import pytest

from slurmddp.monitoring.status import run_progress
from slurmddp.runs import history
from slurmddp.runs.layout import RunDir

HEAD = {"job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def event(kind, time, **fields):
    return {"time": time, "event": kind, **HEAD, **fields}


def metrics(time, step, **values):
    return event("metrics", time, step=step, total=100, values=values)


def write(run, *lines):
    run.events.write_text("".join(json.dumps(line) + "\n" for line in lines))


def progress(run, *, running=True, now=100.0):
    return run_progress.read_progress(run, history.read(run), "7", running=running, now=now)


def ending(run, *, gone=True):
    found = run_progress.read_state(run, history.read(run), "7", gone=gone)
    return found.state, found.exit_status


def test_how_far_a_job_is(run):
    write(run, metrics(10, 10, loss=0.5, samples_per_s=64.0), metrics(100, 40, loss="nan", samples_per_s=None))
    found = progress(run)
    assert (found.attempt, found.step, found.total, found.samples_per_s) == ("0.0", 40, 100, None)
    assert found.loss != found.loss, "nan"
    assert found.left_s == 60 * 90 / 30
    assert progress(run, running=False).left_s is None
    assert progress(run, now=190.0).left_s == 90.0


@pytest.mark.parametrize(
    "lines", [[metrics(10, 10)], [metrics(10, 10), metrics(11, 10)], [metrics(9, 9), {**metrics(10, 10), "total": 0}]]
)
def test_no_time_is_told_without_a_pace(run, lines):
    write(run, *lines)
    assert progress(run).left_s is None


@pytest.mark.parametrize("lines", [[metrics(10, 10), metrics(10, 11)], [metrics(99, 10), metrics(98, 11)]])
def test_clocks_that_stand_or_go_back_tell_no_pace(run, lines):
    write(run, *lines)
    assert progress(run).left_s is None


@pytest.mark.parametrize("total", [2**63 - 1, 1e300])
def test_a_training_for_ever_has_no_end_to_tell(run, total):
    write(run, *({**metrics(time, time), "total": total} for time in (10, 20)))
    assert progress(run).left_s is None


def test_values_of_another_kind_are_no_numbers(run):
    write(run, event("metrics", 1, step="x", total=None, values=[3]))
    assert (progress(run).step, progress(run).total, progress(run).loss) == (0, None, None)


def test_the_newest_whole_checkpoint_counts(run):
    for step in (10, 20, 30):
        (run.checkpoints / f"step-{step:09d}").mkdir(parents=True)
    (run.checkpoints / "step-000000020" / "manifest.json").touch()
    write(run)
    assert progress(run).checkpoint_step == 20


def test_a_checkpoint_of_the_program_itself_counts(run):
    own = run.path / "own.pt"
    write(run, event("attempt_start", 1, nodes="n1", log_offset=0, checkpoints=f"{run.path}/*.pt"))
    assert progress(run).checkpoint_path == ""
    own.touch()
    os.utime(own, (90, 90))
    found = progress(run)
    assert (found.checkpoint_path, found.checkpoint_age_s, found.checkpoint_step) == (str(own), 10.0, None)


def test_restarts_and_requeues_have_their_reasons(run):
    back = {**HEAD, "attempt": "1.0"}
    again = {**HEAD, "attempt": "2.0"}
    write(
        run,
        event("start", 1),
        event("restart", 2, status=76, reason="peer lost"),
        event("requeue", 3, reason="preempted"),
        {"time": 9, "event": "start", **back},
        {"time": 20, "event": "start", **again},
    )
    found = progress(run)
    assert found.restarts == ((2.0, "peer lost"),)
    assert found.requeues == ((3.0, "preempted"), (20.0, run_progress.UNRECORDED))


def started(attempt="0.0"):
    return {**event("attempt_start", 1, nodes="n1", log_offset=0), "attempt": attempt}


def ended(status, kind="attempt_end", attempt="0.0"):
    return {**event(kind, 2, status=status, reason="why"), "attempt": attempt}


def fenced(attempt="0.0"):
    return {**event("fenced", 3, reason="the run belongs to job 8"), "attempt": attempt}


RETRY = ended(76)


@pytest.mark.parametrize(
    ("lines", "gone", "alive"),
    [
        ([ended(0), ended(0, "job_end")], ("COMPLETED", "0:0"), ("COMPLETED", "0:0")),
        ([ended(77), ended(77, "job_end")], ("FAILED", "77:0"), ("FAILED", "77:0")),
        ([RETRY], ("FAILED", "76:0"), ("RUNNING", "")),
        ([RETRY, ended(76, "job_end")], ("FAILED", "76:0"), ("FAILED", "76:0")),
        ([RETRY, event("restart", 3), started("0.1")], ("UNKNOWN", ""), ("RUNNING", "")),
        ([ended(75), event("requeue", 3)], ("UNKNOWN", ""), ("PENDING", "")),
        ([ended(75), event("requeue", 3), fenced("1.0")], ("FAILED", "78:0"), ("FAILED", "78:0")),
        ([started("1.0"), ended(0, "job_end", "1.0"), fenced()], ("COMPLETED", "0:0"), ("COMPLETED", "0:0")),
        ([ended(77, "job_end"), started("1.0")], ("UNKNOWN", ""), ("RUNNING", "")),
        ([], ("UNKNOWN", ""), ("RUNNING", "")),
    ],
    ids=["done", "failed", "retry", "gave-up", "again", "requeued", "fenced", "fenced-late", "by-hand", "silent"],
)
def test_the_supervisors_events_tell_the_end(run, lines, gone, alive):
    """While Slurm does not answer, the end of an attempt after which the job can go on is no end."""
    write(run, started(), *lines)
    assert ending(run) == gone
    assert ending(run, gone=False) == alive


def test_a_set_up_that_failed_ends_the_job_unless_it_was_started_again_since(run):
    run.batch_record("7").write_text("127 set-up failed with status 127: module load nothing\n")
    write(run)
    found = run_progress.read_state(run, history.read(run), "7", gone=False)
    assert (found.state, found.exit_status) == ("FAILED", "127:0")
    assert found.reason == "set-up failed with status 127: module load nothing"
    os.utime(run.batch_record("7"), (0, 0))
    write(run, started())
    assert ending(run, gone=False) == ("RUNNING", "")
    run.batch_record("7").write_text("127 set-up fai")
    assert ending(run) == ("UNKNOWN", "")


@pytest.mark.parametrize(
    ("said", "gone", "alive"),
    [
        ({0: "0 done", 1: "0 done"}, ("COMPLETED", "0:0"), ("COMPLETED", "0:0")),
        ({0: "76 rank 0 on n1: lost", 1: "77 rank 1 on n1: boom"}, ("FAILED", "77:0"), ("FAILED", "77:0")),
        ({0: "76 rank 0 on n1: lost"}, ("FAILED", "76:0"), ("RUNNING", "")),
    ],
)
def test_without_a_supervisors_events_the_ranks_of_the_last_attempt_tell_the_end(run, said, gone, alive):
    """As in runs that were made before there were such events."""
    write(run, event("start", 1))
    for attempt, records_of in (("0.0", {0: "0 done"}), ("0.1", said)):
        run.attempt("7", attempt).mkdir(parents=True)
        for rank, text in records_of.items():
            run.rank_record("7", attempt, rank).write_text(f"{text}\n")
    assert ending(run) == gone
    assert ending(run, gone=False) == alive


def test_a_job_that_was_told_that_it_is_cancelled_was(run):
    write(run, event("notice", 5, cause="SIGTERM", reason="cancelled"), event("end", 6, status=75, reason="x"))
    assert ending(run) == ("CANCELLED", "")
    write(run, started(), event("notice", 5, cause="SIGTERM", reason="cancelled"), ended(75))
    assert ending(run) == ("CANCELLED", "")
    write(run, event("notice", 5, cause="SIGTERM", reason="preempted"))
    assert ending(run) == ("UNKNOWN", "")


def test_a_job_without_any_file_is_unknown(tmp_path):
    nothing = RunDir(tmp_path / "none")
    assert ending(nothing) == ending(nothing, gone=False) == ("UNKNOWN", "")
    assert run_progress.last_seen(nothing, history.read(nothing), "7") is None
