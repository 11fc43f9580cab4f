"""A program that saves itself is asked how it ends: when it is time, and unless a peer has failed."""

import time
from dataclasses import replace

import pytest

from slurmddp import exit_codes
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.stopping.signals import CLOCK, NOTICES
from slurmddp.runtime.stopping.stop_policy import Stopping

SAVED = Verdict(exit_codes.STOPPED, "saved")


@pytest.fixture
def left(monkeypatch):
    """Put the notices of this process back afterwards; return the verdicts that a rank would have left with."""
    verdicts = []
    for name in ("cause", "_act", "_acted", "_ends"):
        monkeypatch.setattr(NOTICES, name, getattr(NOTICES, name))
    monkeypatch.setattr(Stopping, "_leave", lambda _, verdict, **__: verdicts.append(verdict))
    return verdicts


def notified(cause: str, *, left_s: float, end=lambda _: SAVED, silent: tuple[int, ...] = ()) -> None:
    stopping = Stopping(replace(read_rank({}), stop_at=time.time() + left_s))
    stopping.expect_plain(lambda _: list(silent))
    stopping.expect_own_end(end)
    NOTICES.cause = cause
    stopping._leave_as_said()


def test_it_ends_as_it_says(left):
    heard = []
    notified("SIGTERM", left_s=600, end=lambda reason: heard.append(reason) or SAVED)
    assert (left, heard) == ([SAVED], ["signal"])


def test_it_goes_on_if_it_says_so(left):
    notified("SIGTERM", left_s=600, end=lambda _: None)
    assert left == []


@pytest.mark.parametrize(("cause", "left_s"), [("SIGUSR2", -1), ("SIGUSR2", 600), (CLOCK, 0)])
def test_the_notice_of_the_time_limit_counts_in_its_time_and_when_it_is_made_up(left, cause, left_s):
    notified(cause, left_s=left_s)
    assert (left, NOTICES.given) == ([SAVED], True)


def test_one_that_slurm_sends_too_early_is_dismissed_and_the_next_counts(left):
    notified("SIGUSR2", left_s=30)
    assert (left, NOTICES.given) == ([], False)


def test_with_a_peer_that_does_not_answer_nothing_is_saved(left):
    """By SIGTERM srun ends the peers of a rank that failed, which is no notice."""
    notified("SIGTERM", left_s=600, silent=(1,))
    assert left[0].status == exit_codes.RETRYABLE
    assert "rank 1 did not answer" in left[0].reason
