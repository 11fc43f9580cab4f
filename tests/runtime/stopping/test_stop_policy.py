"""Each phase has one policy; a callable that saves itself is asked how it ends, unless a peer has failed."""

import threading
import time
from dataclasses import replace

import pytest

from slurmddp import exit_codes
from slurmddp.errors import RankError
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.stopping import stop_policy
from slurmddp.runtime.stopping.signals import CLOCK, StopSignals
from slurmddp.runtime.stopping.stop_policy import Phase, Stopping

SAVED = Verdict(exit_codes.STOPPED, "saved")


class Leaves:
    """Stands for the exit of the process: notes the status, and goes on."""

    def __init__(self):
        self.statuses = []

    def leave(self, status):
        self.statuses.append(status)


def make_stopping(**changes) -> Stopping:
    return Stopping(replace(read_rank({}), **changes), StopSignals(), Leaves())


def request_stop(stopping: Stopping, cause: str = "SIGTERM") -> list[int]:
    """Answer a stop request as the signal thread does; return the statuses that the rank has left with."""
    stopping.signals.cause, stopping.signals.requested_at = cause, time.monotonic()
    stopping.answer()
    return stopping._process_exit.statuses


def call(*, left_s: float = 600, end=lambda _: SAVED, silent: tuple[int, ...] = ()) -> Stopping:
    stopping = make_stopping(stop_at=time.time() + left_s)
    stopping.confirm = lambda _: list(silent)
    stopping.end_call = end
    stopping.enter(Phase.CALL)
    return stopping


def test_every_phase_has_a_policy():
    assert set(make_stopping()._policies) == set(Phase)


@pytest.mark.parametrize(
    ("phase", "statuses"),
    [
        (Phase.START, []),
        (Phase.RENDEZVOUS, [exit_codes.RETRYABLE]),
        (Phase.SCRIPT, [exit_codes.STOPPED]),
        (Phase.LEFT_LOOP, [exit_codes.STOPPED]),
        (Phase.EXIT, []),
    ],
)
def test_what_a_stop_request_means_in_a_phase(monkeypatch, phase, statuses):
    monkeypatch.setattr(stop_policy, "LEFT_LIMIT_S", 0.1)
    stopping = make_stopping()
    stopping.enter(phase)
    assert request_stop(stopping) == statuses


def test_a_request_is_answered_again_in_the_next_phase_alone():
    stopping, answers = make_stopping(), []
    stopping.answer_executable = lambda: answers.append(stopping.signals.cause)
    stopping.enter(Phase.EXECUTABLE)
    request_stop(stopping)
    request_stop(stopping)
    assert answers == ["SIGTERM"]
    stopping.enter(Phase.SCRIPT)
    assert request_stop(stopping) == [exit_codes.STOPPED]


def test_a_rank_whose_phase_has_ended_is_not_ended():
    stopping = make_stopping()
    stopping.confirm = lambda _: stopping.enter(Phase.EXIT) or []
    stopping.enter(Phase.SCRIPT)
    assert request_stop(stopping) == []


def test_a_loop_that_reaches_its_end_is_left_alone():
    stopping = make_stopping()
    stopping.enter(Phase.LOOP)
    threading.Timer(0.2, stopping.enter, [Phase.EXIT]).start()
    assert request_stop(stopping) == []


@pytest.mark.parametrize("silent", [[], [1]])
def test_a_loop_that_is_stuck_is_ended_for_another_attempt(monkeypatch, silent, capsys):
    monkeypatch.setattr(stop_policy, "CONFIRM_LIMIT_S", 0.1)
    monkeypatch.setattr(stop_policy, "LOOP_LIMIT_S", 0.1)
    stopping = make_stopping()
    stopping.confirm = lambda _: silent
    stopping.enter(Phase.LOOP)
    assert request_stop(stopping) == [exit_codes.RETRYABLE]
    words = "lost rank 1: no answer within 0.1 s" if silent else "the loop did not reach its next step in time"
    assert words in capsys.readouterr().out


def test_a_loop_that_was_left_has_time_to_report_its_failure():
    stopping = make_stopping()
    stopping.enter(Phase.LEFT_LOOP)
    threading.Timer(0.2, stopping.enter, [Phase.EXIT]).start()
    assert request_stop(stopping) == []


FAILED = Verdict(exit_codes.FAILED, "OSError: gone")


@pytest.mark.parametrize(
    ("phase", "error", "is_consequence"),
    [
        (Phase.LOOP, OSError(), True),
        (Phase.LEFT_LOOP, OSError(), True),
        (Phase.SCRIPT, OSError(), False),
        (Phase.LEFT_LOOP, RankError("cannot be saved"), False),
        (Phase.LEFT_LOOP, SystemExit(1), False),
    ],
)
def test_which_failures_are_consequences_of_a_stop_request(monkeypatch, phase, error, is_consequence, capsys):
    monkeypatch.setattr(stop_policy, "LEFT_LIMIT_S", 0)
    monkeypatch.setattr(stop_policy, "CONFIRM_LIMIT_S", 0)
    monkeypatch.setattr(stop_policy, "LOOP_LIMIT_S", 0)
    stopping = make_stopping()
    stopping.enter(phase)
    assert stopping.judge_failure(error, FAILED) == FAILED
    request_stop(stopping)
    stopped = Verdict(exit_codes.STOPPED, "stop signal received (signal); slurmddp saved nothing (OSError: gone)")
    assert stopping.judge_failure(error, FAILED) == (stopped if is_consequence else FAILED)
    capsys.readouterr()


def test_a_call_ends_as_it_says():
    reasons = []
    assert request_stop(call(end=lambda reason: reasons.append(reason) or SAVED)) == [SAVED.status]
    assert reasons == ["signal"]


def test_a_call_goes_on_if_it_says_so():
    assert request_stop(call(end=lambda _: None)) == []


@pytest.mark.parametrize(("cause", "left_s"), [("SIGUSR2", -1), ("SIGUSR2", 600), (CLOCK, 0)])
def test_the_signal_of_the_time_limit_counts_in_its_time_and_when_it_is_made_up(cause, left_s):
    stopping = call(left_s=left_s)
    assert request_stop(stopping, cause) == [SAVED.status]
    assert stopping.signals.stop_requested


def test_one_that_slurm_sends_too_early_is_dismissed_and_the_next_counts():
    stopping = call(left_s=30)
    assert request_stop(stopping, "SIGUSR2") == []
    assert not stopping.signals.stop_requested
    assert request_stop(stopping, "SIGTERM") == [SAVED.status]


def test_with_a_peer_that_does_not_answer_nothing_is_saved(capsys):
    """By SIGTERM srun ends the peers of a rank that failed, which is no stop request."""
    assert request_stop(call(silent=(1,))) == [exit_codes.RETRYABLE]
    assert "lost rank 1: no answer" in capsys.readouterr().out


def test_only_a_phase_that_ends_the_process_is_waited_for():
    began = time.monotonic()
    stopping = make_stopping()
    stopping.signals.cause = "SIGTERM"
    stopping.enter(Phase.LEFT_LOOP)
    stopping.await_exit(30)
    stopping.signals.cause = ""
    stopping.enter(Phase.SCRIPT)
    stopping.await_exit(30)
    assert time.monotonic() - began < 10
