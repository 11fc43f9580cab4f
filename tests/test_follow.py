"""Waiting: whole lines in the order they come, and an end that is not missed when the controller forgets the job."""

import itertools
import time

import pytest

from slurmddp import follow, slurm
from slurmddp.errors import ClusterError
from slurmddp.rundir import RunDir

LAST = "2026-01-02T03:04:05+0000 slurmddp: job 7, attempt 1.0, ended with status {}: done\n"


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "r")
    made.create()
    made.attempt("7", "0.0").mkdir(parents=True)
    return made


def test_only_whole_lines_are_passed_on_and_each_once(run):
    output = follow.Output(run, "7")
    log = run.rank_log("7", "0.0", 0)
    assert list(output.new()) == []
    log.write_bytes(b"one\ntw")
    assert list(output.new()) == ["one"]
    with log.open("ab") as file:
        file.write(b"o\n\xff\n")
    assert list(output.new()) == ["two", "\ufffd"]


def test_a_later_attempt_is_followed_too(run):
    output = follow.Output(run, "7")
    run.rank_log("7", "0.0", 0).write_text("first\n")
    assert list(output.new()) == ["first"]
    run.attempt("7", "1.0").mkdir()
    run.rank_log("7", "1.0", 0).write_text("second\n")
    run.rank_log("7", "1.0", 1).write_text("of another rank\n")
    assert list(output.new()) == ["second"]


def test_the_batch_scripts_last_words_tell_its_status(run):
    output = follow.Output(run, "7")
    assert output.status is None and not output.stirs
    run.batch_log("7").write_text(LAST.format(77))
    list(output.new())
    assert output.status == 77 and output.stirs


def test_a_progress_bar_s_returns_end_lines_too(run):
    output = follow.Output(run, "7")
    log = run.rank_log("7", "0.0", 0)
    log.write_bytes(b" 10%\r 20%\r")
    assert list(output.new()) == [" 10%"]
    with log.open("ab") as file:
        file.write(b"\nnext\r\nlast")
    assert list(output.new()) == [" 20%", "next"]


def test_a_line_without_an_end_is_passed_on_when_it_is_long(run):
    output = follow.Output(run, "7")
    log = run.rank_log("7", "0.0", 0)
    log.write_bytes(b"x" * (follow.LINE_BYTES - 1))
    assert list(output.new()) == []
    with log.open("ab") as file:
        file.write(b"x")
    assert list(output.new()) == ["x" * follow.LINE_BYTES]


def test_a_long_file_is_read_in_several_looks(run):
    output = follow.Output(run, "7")
    run.rank_log("7", "0.0", 0).write_bytes((b"x" * 999 + b"\n") * 3000)
    assert len(list(output.new())) == follow.READ_BYTES // 1000
    assert len(list(output.rest())) == 3000 - follow.READ_BYTES // 1000


def test_without_the_ranks_only_the_batch_scripts_words_are_read(run):
    output = follow.Output(run, "7", ranks=False)
    run.rank_log("7", "0.0", 0).write_text("of rank 0\n")
    run.batch_log("7").write_text(LAST.format(0))
    assert list(output.new()) == [LAST.format(0).rstrip("\n")]
    assert output.status == 0


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\tb", "a\tb"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        (b"x\x08\x00y", "x\ufffd\ufffdy"),
        ("\u202e\u00e4".encode(), "\ufffd\u00e4"),
    ],
)
def test_what_is_shown_can_do_nothing_to_a_terminal(run, written, shown):
    run.rank_log("7", "0.0", 0).write_bytes(written + b"\n")
    assert list(follow.Output(run, "7").new()) == [shown]


class Controller:
    """Stands for Slurm's; the job's states, with reasons, one for each question, the last one for all that follow."""

    def __init__(self, *states):
        self.states = list(states)
        self.asked_at = []

    def job(self, job_id, _environ):
        self.asked_at.append(time.monotonic())
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        state, _, reason = (state() if callable(state) else state).partition(" ")
        return slurm.Job(job_id, state, reason=reason)

    @property
    def pauses_s(self):
        return [after - before for before, after in itertools.pairwise(self.asked_at)]


@pytest.fixture
def quick(monkeypatch):
    """Shorten the pauses; return a function that puts a controller in Slurm's place."""
    monkeypatch.setattr(follow, "ASK_S", 0.5)
    monkeypatch.setattr(follow, "SOON_S", 0.05)
    monkeypatch.setattr(follow, "LOOK_S", 0.01)

    def put(*states):
        controller = Controller(*states)
        monkeypatch.setattr(slurm, "job", controller.job)
        return controller

    return put


def test_a_job_that_nobody_knows_any_more_ends_the_wait_with_its_output_shown(run, quick, monkeypatch):
    controller = quick("RUNNING", "UNKNOWN", "RUNNING", "UNKNOWN")
    monkeypatch.setattr(follow, "ASK_S", 0.01)
    run.rank_log("7", "0.0", 0).write_text("shown\n")
    shown = []
    with pytest.raises(ClusterError, match=f"no longer knows job 7, .* its output is in {run.logs}"):
        follow.wait(run, "7", {}, show=shown.append, notice=lambda _: None)
    assert len(controller.asked_at) == 6
    assert shown == ["shown"]


def test_words_of_the_batch_script_make_the_next_question_soon_but_silence_does_not(run, quick):
    """Here 0.5 s stand for the 10 s between questions, and 0.05 s for the second."""

    def speak():
        run.batch_log("7").write_text("srun: error\n")
        return "RUNNING"

    controller = quick("RUNNING", speak, "RUNNING", "FAILED")
    assert follow.wait(run, "7", {}, notice=lambda _: None).state == "FAILED"
    silent, *soon = controller.pauses_s
    assert silent >= 0.5
    assert max(soon) < 0.4


def test_steady_words_of_the_batch_script_do_not_make_questions_soon_for_ever(run, quick, monkeypatch):
    monkeypatch.setattr(follow, "_SOON_LIMIT_S", 0.01)
    log = run.batch_log("7")

    def speak():
        with log.open("a") as file:
            file.write("again\n")
        return "RUNNING"

    log.write_text("first\n")
    controller = quick("RUNNING", speak, "COMPLETED")
    follow.wait(run, "7", {}, notice=lambda _: None)
    assert controller.pauses_s[-1] >= 0.5


def test_a_queued_job_is_said_to_run_before_its_first_line_is_shown(run, quick):
    def begin():
        run.rank_log("7", "0.0", 0).write_text("hello\n")
        return "PENDING"

    controller = quick(begin, "RUNNING", "COMPLETED")
    said = []
    follow.wait(run, "7", {}, show=said.append, notice=said.append)
    assert said == ["job 7 is PENDING", "job 7 is RUNNING", "hello", "job 7 is COMPLETED"]
    assert controller.pauses_s[0] < 0.4


def test_a_job_that_cannot_start_by_itself_is_said_to_with_what_to_type(run, quick):
    quick("PENDING Resources", "PENDING JobHeldUser", "PENDING JobHeldUser", "RUNNING", "COMPLETED")
    said = []
    follow.wait(run, "7", {}, notice=said.append)
    assert said == [
        "job 7 is PENDING (Resources)",
        "job 7 is PENDING (JobHeldUser)",
        "it was submitted with --hold, or held by its owner; `scontrol release 7` lets it go on",
        "job 7 is RUNNING",
        "job 7 is COMPLETED",
    ]


@pytest.mark.parametrize(("status", "state"), [(0, "COMPLETED"), (77, "FAILED")])
def test_a_job_that_the_controller_forgot_ended_as_its_script_said(run, monkeypatch, status, state):
    """The controller is a stand-in here: a real one forgets a job only after its MinJobAge, minutes later."""
    monkeypatch.setattr(slurm, "job", lambda job_id, _environ: slurm.Job(job_id, "UNKNOWN"))
    monkeypatch.setattr(follow, "SOON_S", 0.01)
    run.batch_log("7").write_text(LAST.format(status))
    shown, noticed = [], []
    assert follow.wait(run, "7", {}, show=shown.append, notice=noticed.append).state == state
    assert shown == [LAST.format(status).rstrip("\n")]
    assert noticed == ["job 7 is UNKNOWN"]


def test_a_controller_that_does_not_answer_ends_the_wait_after_a_while(run, monkeypatch):
    """The same stand-in."""
    asked = []

    def silent(job_id, _environ):
        asked.append(job_id)
        raise ClusterError("squeue: no answer")

    monkeypatch.setattr(slurm, "job", silent)
    monkeypatch.setattr(follow, "ASK_S", 0.001)
    with pytest.raises(ClusterError, match="no answer"):
        follow.wait(run, "7", {}, notice=print)
    assert len(asked) == 30
