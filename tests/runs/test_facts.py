"""What happened in a run is read once, and has one outcome."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from event_lines import event, write

from slurmddp.outcome import MEANINGS, SCRIPT_KILLED, Kind, Outcome, kind_of_status
from slurmddp.runs import facts, history
from slurmddp.runs.files import append_record
from slurmddp.runs.history import read_outline
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    return made


def ending_of(run, *, gone=True):
    return facts.read_job(run, "7", silent=not gone, history=history.read_outline(run)).outcome


def ending(run, *, gone=True):
    found = ending_of(run, gone=gone)
    return found.word, found.exit_status


def by_slurm(run, state, exit_status="", **fields):
    job = JobInfo(job_id="7", state=state, source="squeue", exit_status=exit_status, **fields)
    return facts.read_job(run, "7", job, history=history.read_outline(run)).outcome


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
        ([RETRY], ("CRASHED", "76:0"), ("RUNNING", "")),
        ([RETRY, ended(76, "job_end")], ("CRASHED", "76:0"), ("CRASHED", "76:0")),
        ([RETRY, event("restart", 3), started("0.1")], ("UNKNOWN", ""), ("RUNNING", "")),
        ([ended(75), event("requeue", 3)], ("UNKNOWN", ""), ("PENDING", "")),
        ([ended(75), event("requeue", 3), fenced("1.0")], ("FENCED", "78:0"), ("FENCED", "78:0")),
        ([started("1.0"), ended(0, "job_end", "1.0"), fenced()], ("COMPLETED", "0:0"), ("COMPLETED", "0:0")),
        ([ended(77, "job_end"), started("1.0")], ("UNKNOWN", ""), ("RUNNING", "")),
        ([], ("UNKNOWN", ""), ("RUNNING", "")),
        ([started("1.0"), ended(77, "job_end")], ("UNKNOWN", ""), ("RUNNING", "")),
    ],
    ids=[
        *("done", "failed", "retry", "gave-up", "again", "requeued", "fenced", "fenced-late", "by-hand", "silent"),
        "failed-late",
    ],
)
def test_the_supervisors_events_tell_the_end(run, lines, gone, alive):
    """While Slurm does not answer, the end of an attempt after which the job can go on is no end."""
    write(run, started(), *lines)
    assert ending(run) == gone
    assert ending(run, gone=False) == alive


def test_a_set_up_that_failed_ends_the_job_unless_it_was_started_again_since(run):
    run.batch_record("7").write_text("127 set-up failed with status 127: module load nothing\n")
    write(run)
    found = ending_of(run, gone=False)
    assert (found.word, found.exit_status) == ("FAILED", "127:0")
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
        ({0: "76 rank 0 on n1: lost"}, ("CRASHED", "76:0"), ("RUNNING", "")),
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


@pytest.mark.parametrize(
    ("state", "exit_status", "kind"),
    [
        ("COMPLETED", "0:0", Kind.DONE),
        ("PENDING", "0:0", Kind.PENDING),
        ("REQUEUE_HOLD", "0:0", Kind.PENDING),
        ("SUSPENDED", "0:0", Kind.RUNNING),
        ("TIMEOUT", "0:0", Kind.TIME_LIMIT),
        ("NODE_FAIL", "0:0", Kind.NODE_LOST),
        ("OUT_OF_MEMORY", "0:125", Kind.OUT_OF_MEMORY),
        ("CANCELLED", "0:15", Kind.CANCELLED),
        ("PREEMPTED", "0:15", Kind.STOPPED),
        ("FAILED", "3:0", Kind.FAILED),
        ("FAILED", "0:9", Kind.KILLED),
        ("FAILED", "143:0", Kind.KILLED),
        ("FAILED", "255:0", Kind.FAILED),
        ("FAILED", "", Kind.FAILED),
        ("ANOTHER", "", Kind.UNKNOWN),
    ],
)
def test_a_job_without_records_has_come_to_what_slurm_says(run, state, exit_status, kind):
    write(run, started())
    found = by_slurm(run, state, exit_status)
    assert found.kind is kind
    assert found.word == (state if state != "FAILED" else MEANINGS[kind].word)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(75, Kind.STOPPED), (76, Kind.CRASHED), (77, Kind.FAILED), (78, Kind.FENCED), (137, Kind.CRASHED)],
)
def test_of_a_failure_the_job_knows_more_than_slurm(run, status, kind):
    reason = "rank 3 on n2: boom"
    write(run, started(), {**ended(status, "job_end"), "reason": reason})
    found = by_slurm(run, "FAILED", f"{status}:0")
    assert (found.kind, found.status, found.reason) == (kind, status, reason)


def test_a_job_that_was_done_within_its_grace_time_was_not_preempted(run):
    write(run, started(), ended(0, "job_end"))
    found = by_slurm(run, "PREEMPTED", "0:0")
    assert (found.kind, found.word, found.reason) == (Kind.DONE, "COMPLETED", facts.PREEMPTED)


@pytest.mark.parametrize(("after_s", "kind"), [(5, Kind.DONE), (3600, Kind.TIME_LIMIT)])
def test_a_job_that_was_done_just_before_its_time_limit_is_done(run, after_s, kind):
    """An hour later it is the script that has gone on after its launch."""
    write(run, started(), ended(0, "job_end"))
    found = by_slurm(run, "TIMEOUT", "0:0", ended=datetime.fromtimestamp(2 + after_s, UTC))
    assert (found.kind, found.word) == (kind, MEANINGS[kind].word)


@pytest.mark.parametrize(
    "recorded",
    [
        [ended(75), {**fenced(), "reason": "Slurm has the job as COMPLETING"}],
        [ended(76), {**fenced(), "reason": f"{SCRIPT_KILLED} 9"}],
        [ended(75)],
    ],
)
def test_a_job_whose_script_was_killed_has_no_other_owner(run, recorded):
    write(run, started(), *recorded)
    found = by_slurm(run, "FAILED", "0:9")
    assert (found.word, found.reason, found.exit_status) == ("KILLED", f"{SCRIPT_KILLED} 9", "0:9")


def test_a_job_whose_script_was_killed_is_known_as_such_when_slurm_has_forgotten_it(run):
    write(run, started(), ended(76), {**fenced(), "reason": f"{SCRIPT_KILLED} 9"})
    found = ending_of(run)
    assert (found.word, found.reason, found.exit_status) == ("KILLED", f"{SCRIPT_KILLED} 9", "")


def test_a_job_that_was_cancelled_has_no_other_owner(run):
    cancelled = event("notice", 2, cause="SIGTERM", reason="cancelled")
    write(run, started(), cancelled, ended(75), {**fenced(), "reason": "Slurm has the job as COMPLETING"})
    assert ending(run) == ("CANCELLED", "")


def test_a_cancelled_job_says_who_cancelled_it(run):
    write(run, started(), event("cancel", 3, by="ada"))
    assert by_slurm(run, "CANCELLED").reason == "cancelled by `slurmddp cancel` (ada)"


def attempts(run, state):
    job = JobInfo(job_id="7", state=state, source="squeue")
    found = facts.read_run(run, {"7": job}, history=history.read_outline(run))
    return [(attempt.name, attempt.outcome.kind) for job in found.jobs for attempt in job.attempts]


def test_an_attempt_without_an_end_has_that_of_its_job_or_was_requeued(run):
    write(run, started(), started("1.0"))
    assert attempts(run, "RUNNING") == [("0.0", Kind.REQUEUED), ("1.0", Kind.RUNNING)]
    assert attempts(run, "TIMEOUT") == [("0.0", Kind.REQUEUED), ("1.0", Kind.TIME_LIMIT)]
    assert attempts(run, "PENDING") == [("0.0", Kind.REQUEUED), ("1.0", Kind.REQUEUED)]
    assert attempts(run, "ANOTHER") == [("0.0", Kind.REQUEUED), ("1.0", Kind.KILLED)]


def test_each_return_to_the_queue_is_told_also_where_rank_0_has_told_an_end(run):
    def stopped(attempt, status=76):
        return {**event("end", 2, status=status, reason="SIGTERM"), "attempt": attempt}

    write(run, started(), stopped("0.0"), started("1.0"), stopped("1.0"), started("2.0"))
    slurm = JobInfo(job_id="7", state="RUNNING", source="squeue")
    assert facts.read_job(run, "7", slurm).requeues == ((2.0, "SIGTERM"), (2.0, "SIGTERM"))
    write(run, started(), stopped("0.0"))
    assert facts.read_job(run, "7", slurm._replace(state="PENDING")).requeues == ((2.0, "SIGTERM"),)
    write(run, started(), stopped("0.0", 0), started("1.0"))
    assert facts.read_job(run, "7", slurm).requeues == (), "it was done"


@pytest.mark.parametrize(("state", "told"), [("RUNNING", 1), ("PENDING", 2), ("FAILED", 1)])
def test_a_requeue_of_which_only_rank_0_has_told_that_it_stopped_for_it_is_told_too(run, state, told):
    """As after `slurmddp requeue`: Slurm ends the supervisor before it has written an event of its own."""
    ends = [{**event("end", 2, status=75, reason="stop signal"), "attempt": attempt} for attempt in ("0.0", "1.0")]
    write(run, started(), ends[0], started("1.0"), ends[1])
    slurm = JobInfo(job_id="7", state=state, source="squeue")
    assert facts.read_job(run, "7", slurm).requeues == ((2.0, "stop signal"),) * told


ENDED_BY_LAUNCHER = [
    event("notice", 2, cause="SIGTERM", reason="signal"),
    event("end", 2, status=76, reason="rank 0 on n1: SIGTERM received: another rank has ended, or the job must stop"),
]
"""What rank 0 leaves when torchrun ends it, before Slurm has a reason."""
CANCELLED_LINE = "slurmstepd-n1: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-28T18:56:07{} ***\n"


def test_a_cancelled_job_whose_rank_0_was_ended_by_its_launcher_is_cancelled_in_every_view(run):
    write(run, started(), *ENDED_BY_LAUNCHER)
    run.batch_log("7").write_text(CANCELLED_LINE.format("") + "Traceback\n" * 9000)
    assert attempts(run, "CANCELLED") == [("0.0", Kind.CANCELLED)]
    forgotten = facts.read_job(run, "7")
    assert [forgotten.outcome.kind, forgotten.attempts[0].outcome.kind] == [Kind.CANCELLED] * 2
    assert ending(run, gone=False) == ("RUNNING", ""), "Slurm may know more"


@pytest.mark.parametrize("due", [" DUE TO JOB REQUEUE", " DUE TO TIME LIMIT", " DUE TO PREEMPTION"])
def test_other_words_of_slurm_in_the_log_are_no_cancellation(run, due):
    write(run, started(), *ENDED_BY_LAUNCHER)
    run.batch_log("7").write_text(CANCELLED_LINE.format(due) + CANCELLED_LINE.format("").replace("JOB 9", "STEP 9.0"))
    assert ending(run) == ("UNKNOWN", "")


def test_the_line_of_a_cancellation_counts_for_the_start_that_wrote_it(run):
    line = CANCELLED_LINE.format("")
    write(run, started(), *ENDED_BY_LAUNCHER, {**started("1.0"), "log_offset": len(line)})
    run.batch_log("7").write_text(line)
    assert ending(run) == ("UNKNOWN", "")
    run.batch_log("7").write_text(2 * line)
    assert ending(run) == ("CANCELLED", "")


def test_the_exit_status_is_the_one_of_slurm_where_the_script_goes_on_after_its_launch(run):
    """As with `srun python train.py || ...; exit 9`; by the files alone it is not known."""
    write(run, started(), ended(77), ended(77, "job_end"))
    run.training_marks.mkdir()
    assert by_slurm(run, "FAILED", "9:0").exit_status == "9:0"
    assert (by_slurm(run, "FAILED").word, by_slurm(run, "FAILED").exit_status) == ("FAILED", "")
    assert ending(run) == ("FAILED", "")


def test_the_last_durable_step_is_a_fact(run):
    write(run, started(), event("checkpoint", 2, step=40, held_s=0, write_s=0), ended(76), ended(76, "job_end"))
    (job,) = facts.read_run(run).jobs
    assert job.history.last("checkpoint").count("step") == 40


def test_a_record_that_cannot_be_read_is_a_fact(run):
    whole = json.dumps(started()).encode()
    run.events.write_bytes(
        b"\n".join([whole, b'{"time": 1, "eve', b'{"time": 2, "ev' + whole, b"7", b'{"time": "x"}', whole])
    )
    assert read_outline(run).damage == (
        "events.jsonl: line 2 is cut off",
        "events.jsonl: line 3 begins with a record that is cut off",
        "events.jsonl: line 4 is no record",
        "events.jsonl: line 5 is no event",
    )
    assert len(facts.read_run(run).jobs[0].history.events) == 3


def test_each_kind_has_one_meaning_for_every_view():
    assert set(MEANINGS) == set(Kind)
    assert [kind for kind in Kind if not kind.final] == [Kind.PENDING, Kind.RUNNING, Kind.UNKNOWN]
    assert [kind for kind in Kind if MEANINGS[kind].wait_status == 0] == [Kind.DONE]
    assert {kind for kind in Kind if MEANINGS[kind].failed} == {kind for kind in Kind if MEANINGS[kind].colour == "red"}
    assert kind_of_status(139) is Kind.CRASHED
    assert Outcome(kind=Kind.KILLED, status=0, signal=9).exit_status == "0:9"


def resumable(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "my jobs" / "train")
    run.create()
    run.spec.touch()
    return run


def test_the_command_works_from_any_folder_and_the_checkpoint_is_named(tmp_path):
    run = resumable(tmp_path)
    command = f"slurmddp submit '{run.spec}'"
    assert facts.describe_resume(run) == f"{command} (starts COMMAND again, which must find its own checkpoint)"
    folder = run.checkpoints / "step-000000120"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    assert facts.describe_resume(run) == f"{command} (continues from the checkpoint of step 120)"


def test_a_checkpoint_of_the_programs_own_is_named(tmp_path):
    run = resumable(tmp_path)
    (tmp_path / "last.pt").touch()
    head = {"time": 1.0, "event": "attempt_start", "job": "7", "attempt": "0.0", "rank": None, "host": "n1"}
    append_record(run.events, {**head, "checkpoints": f"{tmp_path}/*.pt"})
    assert facts.describe_resume(run).endswith(f"(continues from the checkpoint {tmp_path}/last.pt)")


def test_a_checkpoint_in_the_folder_that_the_program_was_given_is_named(tmp_path):
    run = resumable(tmp_path)
    run.checkpoints.mkdir()
    (run.checkpoints / "step-000000120").mkdir()  # without a manifest, so no checkpoint
    assert "starts COMMAND again" in facts.describe_resume(run)
    (run.checkpoints / "last.pt").touch()
    assert facts.describe_resume(run).endswith(f"(continues from the checkpoint {run.checkpoints}/last.pt)")


def test_a_sweep_and_a_script_that_sbatch_got_are_not_resumed_by_one_command(tmp_path):
    run = resumable(tmp_path)
    append_record(run.submissions, {"job": "7"})
    assert facts.is_resumable(run)
    append_record(run.submissions, {"job": "8", "settings": [{"lr": "1"}]})
    assert not facts.is_resumable(run)
    assert not facts.is_resumable(RunDir(tmp_path / "other"))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("signal", "a signal for which Slurm names no reason"),
        ("requeued", "by `scontrol requeue`, or a preemption without grace time"),
        ("preempted", "preempted"),
        (None, facts.BY_SLURM),
    ],
)
def test_a_return_to_the_queue_of_which_only_the_next_start_tells_has_its_time_and_its_reason_in_words(
    run, reason, words
):
    """The time is that of Slurm; it is not the last event of the start before."""
    told = [event("notice", 5, cause="SIGTERM", reason=reason)] if reason else []
    write(run, started(), *told, {**started("1.0"), "time": 90, "queued": 60.0})
    (job,) = facts.read_run(run).jobs
    assert job.requeues == ((60.0, words),) and job.attempts[0].left == 60.0
    for line in told:
        shown = history.describe_event(history.Event.parse(line))
        assert shown == f"stop signal received: {words} (SIGTERM)"
