"""Waiting: whole lines in the order they come, and an end that is not missed when the controller forgets the job."""

import itertools
import os
import socket
import threading
import time

import pytest

from slurmddp.errors import ClusterError
from slurmddp.monitoring import follow
from slurmddp.monitoring.logs import log_files
from slurmddp.runs import log_tail as tail
from slurmddp.runs.files import append_record
from slurmddp.runs.history import History, read_newest
from slurmddp.runs.layout import RunDir
from slurmddp.slurm import client, queries
from slurmddp.slurm.job_info import JobInfo, Listing
from slurmddp.text import clean_line

HEAD = {"time": 1.0, "job": "7", "attempt": "1.0", "rank": None, "host": "n1"}
LAST = "the batch script's last line\n"


def end(run, status, kind="job_end", **head):
    """Write down that the job, or an attempt, has ended."""
    append_record(run.events, {**HEAD, "event": kind, "status": status, "reason": "why", **head})


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    made.attempt("7", "0.0").mkdir(parents=True)
    return made


def shown(output):
    return [clean_line(line.text) for line in output.new_lines()]


@pytest.mark.parametrize(
    "looks",
    [
        [(b"one\ntw", ["one"]), (b"one\ntwo\n\xff\n", ["two", "\ufffd"])],
        [(b"one\ntwo\n", ["one", "two"]), (b"3\n", ["3"])],
        [(b" 10%\r 20%\r", [" 10%"]), (b" 10%\r 20%\r\nnext\r\nlast", [" 20%", "next"])],
    ],
    ids=["lines", "emptied", "returns of a progress bar"],
)
def test_only_whole_lines_are_passed_on_and_each_once(run, looks):
    output = follow.Output(run, "7")
    assert shown(output) == []
    for content, new in looks:
        run.rank_log("7", "0.0", 0).write_bytes(content)
        assert shown(output) == new


def test_a_later_attempt_is_followed_too(run):
    output = follow.Output(run, "7")
    run.rank_log("7", "0.0", 0).write_text("first\n")
    assert shown(output) == ["first"]
    run.attempt("7", "1.0").mkdir()
    run.rank_log("7", "1.0", 0).write_text("second\n")
    run.rank_log("7", "1.0", 1).write_text("of another rank\n")
    assert shown(output) == ["second"]


def test_all_ranks_are_followed_and_where_they_run_is_known_once_they_have_met(run):
    output = follow.Output(run, "7", ranks=None)
    run.rank_log("7", "0.0", 1).write_text("imports\n")
    (run.attempt("7", "0.0") / "node-1.out").write_text("launches\n")
    assert [(line.source.label, line.source.host) for line in output.new_lines()] == [("node 1", ""), ("rank 1", "")]
    head = {"time": 1.0, "event": "start", "job": "7", "attempt": "0.0", "rank": 0, "host": "n1"}
    append_record(run.events, {**head, "ranks": {"n1": "0", "n2": "1"}})
    run.rank_log("7", "0.0", 1).write_text("imports\nbegins\n")
    (line,) = output.new_lines()
    assert (line.text, line.source.host, line.attempt, line.told) == (b"begins\n", "n2", "0.0", "seen")


def test_where_ranks_run_is_looked_for_once_a_look(run, monkeypatch):
    made = []
    monkeypatch.setattr(log_files, "read_outline", lambda _: made.append(1) or History(()))
    output = follow.Output(run, "7", ranks=None)
    for rank in range(5):
        run.rank_log("7", "0.0", rank).write_text("one\n")
    assert [line.source.host for line in output.new_lines()] == [""] * 5 and len(made) == 1
    run.rank_log("7", "0.0", 0).write_text("one\ntwo\n")
    assert [line.source.host for line in output.new_lines()] == [""] and len(made) == 2
    run.rank_log("7", "0.0", 0).write_text("one\ntwo\nthree\n")
    assert shown(output) == ["three"] and len(made) == 2


def test_what_was_there_before_can_be_skipped(run):
    output = follow.Output(run, "7")
    log = run.rank_log("7", "0.0", 0)
    log.write_bytes(b"old\nhalf")
    run.batch_log("7").write_text(LAST)
    end(run, 0)
    run.batch_errors("7").write_text("old\n")
    assert output.skip_existing(["0.0"]) == {log: 4, run.batch_log("7"): len(LAST), run.batch_errors("7"): 4}
    assert shown(output) == []
    with log.open("ab") as file:
        file.write(b" and half\n")
    assert shown(output) == ["half and half"]


def test_attempts_before_the_wanted_one_are_skipped_whole(run):
    run.attempt("7", "0.1").mkdir()
    for attempt in ("0.0", "0.1"):
        run.rank_log("7", attempt, 0).write_text(f"{attempt}\n")
    output = follow.Output(run, "7")
    assert run.rank_log("7", "0.0", 0) not in output.skip_existing(["0.1"])
    assert shown(output) == []


def test_files_that_have_not_grown_are_not_opened(run, monkeypatch):
    output = follow.Output(run, "7")
    run.rank_log("7", "0.0", 0).write_text("one\n")
    assert shown(output) == ["one"]
    monkeypatch.setattr(tail.GrowingFile, "_read", lambda *_: pytest.fail("opened"))
    assert shown(output) == []


def test_after_an_attempts_end_a_change_is_expected(run):
    output = follow.Output(run, "7")
    assert not output.is_change_expected
    end(run, 0, job="8")
    list(output.new_lines())
    assert not output.is_change_expected
    end(run, 76, "attempt_end")
    list(output.new_lines())
    assert output.is_change_expected


def test_of_many_events_only_the_newest_are_read_and_only_if_there_are_new_ones(run, monkeypatch):
    metrics = b'{"time": 1.0, "event": "metrics", "job": "7", "attempt": "0.0", "rank": 0, "host": "n1", "step": 1}\n'
    run.events.write_bytes(metrics * 50000)
    end(run, 77)
    read = []
    monkeypatch.setattr(follow, "read_newest", lambda run: read.append(read_newest(run)) or read[-1])
    output = follow.Output(run, "7")
    list(output.new_lines())
    assert output.is_change_expected and [len(history.events) < 1000 for history in read] == [True]
    list(output.new_lines())
    assert len(read) == 1
    end(run, 0)
    list(output.new_lines())
    assert len(read) == 2


def test_a_long_file_is_read_in_several_looks(run):
    output = follow.Output(run, "7")
    run.rank_log("7", "0.0", 0).write_bytes((b"x" * 999 + b"\n") * 3000)
    assert len(list(output.new_lines())) == tail.READ_BYTES // 1000
    with run.rank_log("7", "0.0", 0).open("ab") as file:
        file.write(b"what a killed rank wrote last")
    assert len(list(output.remaining_lines())) == 3001 - tail.READ_BYTES // 1000


def test_without_the_ranks_only_the_batch_scripts_words_are_shown(run):
    output = follow.Output(run, "7", ranks=frozenset())
    run.rank_log("7", "0.0", 0).write_text("of rank 0\n")
    run.batch_log("7").write_text(LAST)
    assert shown(output) == [LAST.rstrip("\n")]


def listing(job_ids, said):
    """Return squeue's row of a job in this state, with the reason behind it; no row for UNKNOWN."""
    state, _, reason = said.partition(" ")
    row = JobInfo(job_id=job_ids[0], state=state, source="squeue", reason=reason)
    return Listing(() if state == "UNKNOWN" else (row,))


class Controller:
    """Stands for Slurm's; the job's states, with reasons, one for each question, the last one for all that follow."""

    def __init__(self, *states):
        self.states = list(states)
        self.asked_at = []

    def queue(self, job_ids, _environ, **_):
        self.asked_at.append(time.monotonic())
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return listing(job_ids, state() if callable(state) else state)

    @property
    def pauses_s(self):
        return [after - before for before, after in itertools.pairwise(self.asked_at)]


@pytest.fixture
def quick(monkeypatch):
    """Shorten the pauses; return a function that puts a controller in Slurm's place."""
    monkeypatch.setattr(follow, "ASK_S", 0.5)
    monkeypatch.setattr(follow, "SOON_S", 0.05)
    monkeypatch.setattr(follow, "READ_PAUSE_S", 0.01)

    def put(*states):
        controller = Controller(*states)
        monkeypatch.setattr(queries, "queue", controller.queue)
        return controller

    return put


def test_a_job_that_nobody_knows_any_more_ends_the_wait_with_its_output_shown(run, quick, monkeypatch):
    controller = quick("RUNNING", "UNKNOWN", "RUNNING", "UNKNOWN")
    monkeypatch.setattr(follow, "ASK_S", 0.01)
    run.rank_log("7", "0.0", 0).write_text("shown\n")
    shown = []
    with pytest.raises(ClusterError, match=f"no longer knows job 7, .* its output is in {run.logs}"):
        follow.wait_for_job(run, "7", {}, show=shown.append, notice=lambda _: None)
    assert len(controller.asked_at) == 6
    assert shown == ["shown"]


@pytest.mark.usefixtures("quick")
def test_a_run_on_this_machine_is_followed_without_slurm(run, monkeypatch):
    monkeypatch.setattr(client, "ask", None)
    job, shown = f"local-1-{os.getpid()}", []
    run.rank_log(job, "0.0", 0).parent.mkdir(parents=True)
    run.owner.write_text(f"local:{socket.gethostname()} {job} 0.0\n")

    def show(line):
        shown.append(line)
        run.owner.unlink()
        run.rank_record(job, "0.0", 0).write_text("0 done\n")

    run.rank_log(job, "0.0", 0).write_text("trains\n")
    assert follow.wait_for_job(run, job, {}, show=show, notice=lambda _: None).word == "COMPLETED"
    assert shown == ["trains"]
    run.rank_record(job, "0.0", 0).unlink()
    with pytest.raises(ClusterError, match=f"this machine no longer runs {job}, and"):
        follow.wait_for_job(run, job, {}, notice=lambda _: None)


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (75, "PREEMPTED")])
def test_a_job_that_was_done_within_its_grace_time_has_succeeded(run, quick, status, state):
    end(run, status)
    quick("RUNNING", "PREEMPTED")
    said = []
    assert follow.wait_for_job(run, "7", {}, notice=said.append).word == state
    assert said[-1] == f"job 7 is {state}"


def test_the_end_of_an_attempt_makes_the_next_question_soon_but_silence_does_not(run, quick):
    """Here 0.5 s stand for the 10 s between questions, by a fifth more or less, and 0.05 s for the second."""

    def speak():
        end(run, 76, "attempt_end")
        return "RUNNING"

    controller = quick("RUNNING", speak, "RUNNING", "FAILED")
    assert follow.wait_for_job(run, "7", {}, notice=lambda _: None).word == "CRASHED"
    silent, *soon = controller.pauses_s
    assert silent >= 0.4
    assert max(soon) < 0.35


def test_a_queued_job_is_said_to_run_before_its_first_line_is_shown(run, quick):
    def begin():
        run.rank_log("7", "0.0", 0).write_text("hello\n")
        return "PENDING"

    controller = quick(begin, "RUNNING", "COMPLETED")
    said = []
    follow.wait_for_job(run, "7", {}, show=said.append, notice=said.append)
    assert said == ["job 7 is PENDING", "job 7 is RUNNING", "hello", "job 7 is COMPLETED"]
    assert controller.pauses_s[0] < 0.4


def test_a_job_that_cannot_start_by_itself_is_said_to_with_what_to_type(run, quick):
    quick("PENDING Resources", "PENDING JobHeldUser", "PENDING JobHeldUser", "RUNNING", "COMPLETED")
    said = []
    follow.wait_for_job(run, "7", {}, notice=said.append)
    held = "it was submitted with --hold, or held by its owner; `scontrol release 7` lets it go on (JobHeldUser)"
    assert said == [
        "job 7 is PENDING: what it asks for is in use by other jobs (Resources)",
        f"job 7 is PENDING: {held}",
        "job 7 is RUNNING",
        "job 7 is COMPLETED",
    ]


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (77, "FAILED")])
def test_a_job_that_the_controller_forgot_ended_as_its_events_tell(run, monkeypatch, status, state):
    """The controller is a stand-in here: a real one forgets a job only after its MinJobAge, minutes later."""
    monkeypatch.setattr(queries, "queue", lambda *_, **_named: Listing())
    monkeypatch.setattr(follow, "SOON_S", 0.01)
    run.batch_log("7").write_text(LAST)
    end(run, status)
    shown, noticed = [], []
    assert follow.wait_for_job(run, "7", {}, show=shown.append, notice=noticed.append).word == state
    assert shown == [LAST.rstrip("\n")]
    assert noticed == [f"job 7 is {state}"]


def test_output_goes_on_while_the_controller_does_not_answer(run, monkeypatch):
    """The same stand-in."""
    monkeypatch.setattr(follow, "READ_PAUSE_S", 0.01)
    monkeypatch.setattr(follow, "ASK_S", 0.05)
    log = run.rank_log("7", "0.0", 0)
    asked = []

    def queue(job_ids, _environ, **_):
        asked.append(job_ids)
        if len(asked) == 5:
            return listing(job_ids, "COMPLETED")
        with log.open("a") as file:
            file.write(f"{len(asked)}\n")
        return listing(job_ids, "RUNNING") if len(asked) == 1 else Listing(silence="slow")

    monkeypatch.setattr(queries, "queue", queue)
    said = []
    assert follow.wait_for_job(run, "7", {}, show=said.append, notice=said.append).word == "COMPLETED"
    silent = "Slurm does not say in which state job 7 is: the controller does not answer (slow); it is asked again"
    assert said == ["job 7 is RUNNING", "1", silent, "2", "3", "4", "job 7 is COMPLETED"]


def test_output_goes_on_while_a_question_hangs(run, quick, monkeypatch):
    """As with a controller that was stopped: its port takes the question, and nobody answers."""
    monkeypatch.setattr(follow, "HOLD_S", 0)
    seen = threading.Event()

    def hang():
        run.rank_log("7", "0.0", 0).write_text("hello\n")
        return "COMPLETED" if seen.wait(60) else "FAILED"

    quick(hang)
    assert follow.wait_for_job(run, "7", {}, show=lambda _: seen.set(), notice=lambda _: None).word == "COMPLETED"


def test_a_controller_that_does_not_answer_ends_the_wait_after_a_while(run, monkeypatch):
    """However long each question takes; it is told once."""
    asked, told = [], []

    def silent(*_, **_named):
        asked.append(1)
        time.sleep(0.25)
        return Listing(silence="slow")

    monkeypatch.setattr(queries, "queue", silent)
    monkeypatch.setattr(follow, "ASK_S", 0.001)
    monkeypatch.setattr(follow, "SILENCE_LIMIT_S", 1.0)
    with pytest.raises(ClusterError, match="does not answer"):
        follow.Follower(follow.Output(run, "7"), {}, lambda _: None, told.append).follow()
    assert 1 < len(asked) <= 5
    assert len(told) == 1
