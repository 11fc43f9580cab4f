"""What the policy decides is done: peers and Slurm are asked, the rank is waited for, and the process ends."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurmddp import exit_codes
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.stopping import policy
from slurmddp.runtime.stopping.policy import Phase
from slurmddp.runtime.stopping.signals import StopSignals
from slurmddp.runtime.stopping.stopping import Progress, Stopping, ask_slurm

SAVED = Verdict(exit_codes.STOPPED, "saved")
FAILED = Verdict(exit_codes.FAILED, "OSError: gone")


class Leaves:
    """Stands for the exit of the process: notes the status, and goes on."""

    def __init__(self):
        self.statuses = []

    def leave(self, status):
        self.statuses.append(status)


def make_stopping(phase: Phase = Phase.START, **hooks) -> Stopping:
    stopping = Stopping(replace(read_rank({}), stop_at=time.time() + 30), StopSignals(), Leaves())
    stopping.enter(phase, **hooks)
    return stopping


def request_stop(stopping: Stopping, cause: str = "SIGTERM") -> list[int]:
    """Answer a stop request as the signal thread does; return the statuses that the rank has left with."""
    stopping.signals.cause, stopping.signals.requested_at = cause, time.monotonic()
    stopping.answer()
    return stopping._process_exit.statuses


@pytest.fixture
def no_time(monkeypatch):
    for limit in ("CONFIRM_LIMIT_S", "LOOP_LIMIT_S", "LEFT_LIMIT_S"):
        monkeypatch.setattr(policy, limit, 0.1)


def test_a_request_is_answered_again_in_the_next_phase_alone():
    answers = []
    stopping = make_stopping(Phase.EXECUTABLE, answer_executable=lambda: answers.append(stopping.signals.cause))
    request_stop(stopping)
    request_stop(stopping)
    assert answers == ["SIGTERM"]
    stopping.enter(Phase.SCRIPT)
    assert request_stop(stopping) == [exit_codes.STOPPED]


def test_a_rank_whose_phase_has_ended_is_not_ended():
    stopping = make_stopping(Phase.SCRIPT, confirm=lambda _: stopping.enter(Phase.EXIT) or [])
    assert request_stop(stopping) == []


@pytest.mark.parametrize("phase", [Phase.LOOP, Phase.LEFT_LOOP])
def test_a_loop_that_reaches_its_end_or_reports_its_failure_is_left_alone(phase):
    stopping = make_stopping(phase)
    threading.Timer(0.2, stopping.enter, [Phase.EXIT]).start()
    assert request_stop(stopping) == []


@pytest.mark.usefixtures("no_time")
def test_a_folder_that_cannot_be_looked_into_does_not_keep_a_request_from_being_answered():
    stopping = make_stopping(Phase.LOOP, confirm=lambda _: [1])
    stopping.rank = replace(stopping.rank, run_dir=RunDir(Path("x" * 300)), job="17", attempt="0.0")
    assert request_stop(stopping) == [exit_codes.RETRYABLE]


def test_what_a_rank_holds_is_saved_before_a_long_step_is_waited_for():
    """KillWait is 30 s by default, less at some sites: two steps of 15 s may be all the time that there is."""
    saved = threading.Event()
    progress = Progress()
    progress.longest_s = 15.0
    stopping = make_stopping(Phase.LOOP, confirm=lambda _: [1], rescue=saved.set, progress=progress)
    answer = threading.Thread(target=request_stop, args=[stopping])
    answer.start()
    assert saved.wait(5)
    stopping.enter(Phase.EXIT)
    answer.join()


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize("silent", [[], [1]])
def test_a_loop_that_is_stuck_is_ended_for_another_attempt(silent, capsys):
    assert request_stop(make_stopping(Phase.LOOP, confirm=lambda _: silent)) == [exit_codes.RETRYABLE]
    words = "lost rank 1: no answer within 0.1 s" if silent else "the loop did not reach its next step in time"
    assert words in capsys.readouterr().out


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize(
    ("phase", "is_consequence"), [(Phase.LOOP, True), (Phase.LEFT_LOOP, True), (Phase.SCRIPT, False)]
)
def test_a_failure_after_a_stop_request_is_its_consequence_in_a_loop(phase, is_consequence):
    stopping = make_stopping(phase)
    assert stopping.judge_failure(OSError(), FAILED) == FAILED
    request_stop(stopping)
    stopped = Verdict(
        exit_codes.STOPPED,
        "stop signal received (signal); slurmddp saved nothing, what the program has saved counts (OSError: gone)",
    )
    assert stopping.judge_failure(OSError(), FAILED) == (stopped if is_consequence else FAILED)


@pytest.mark.parametrize(("verdict", "statuses"), [(SAVED, [SAVED.status]), (None, [])])
def test_a_call_ends_as_it_says(verdict, statuses):
    reasons = []
    assert (
        request_stop(make_stopping(Phase.CALL, end_call=lambda reason: reasons.append(reason) or verdict)) == statuses
    )
    assert reasons == ["signal"]


def test_a_request_that_slurm_sends_too_early_is_dismissed_and_the_next_counts():
    stopping = make_stopping(Phase.CALL, end_call=lambda _: SAVED)
    assert request_stop(stopping, "SIGUSR2") == []
    assert not stopping.signals.stop_requested
    assert request_stop(stopping, "SIGTERM") == [SAVED.status]


def test_only_a_phase_that_ends_the_process_is_waited_for():
    began = time.monotonic()
    stopping = make_stopping(Phase.LEFT_LOOP)
    stopping.signals.cause = "SIGTERM"
    stopping.await_exit(30)
    stopping.signals.cause = ""
    stopping.enter(Phase.SCRIPT)
    stopping.await_exit(30)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("launcher", "reason"), [("srun", "cancelled"), ("torchrun", "signal")])
def test_slurm_is_asked_where_its_srun_started_the_rank(launcher, reason, tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    record = "JobId=17 JobName=x UserId=me(7) JobState=COMPLETING Reason=None Restarts=0 EndTime=Unknown"
    scontrol.write_text(f'#!/bin/sh\n[ "$*" = "--oneliner show job 17" ] && echo "{record}"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    rank = replace(read_rank({}), launcher=launcher, job="17", attempt="0.1")
    assert ask_slurm(rank, "SIGTERM").reason == reason
    scontrol.unlink()
    assert ask_slurm(rank, "SIGTERM") == ("signal", None)
