"""What a stop request means in each phase, decided from values alone; what Slurm shows is that of 22.05.8."""

from dataclasses import replace
from datetime import datetime

import pytest

from slurmddp.errors import RankError
from slurmddp.exit_codes import FAILED, RETRYABLE, STOPPED
from slurmddp.runtime.exiting.classify import Verdict
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.stopping.policy import (
    CONFIRM_LIMIT_S,
    LEFT_LIMIT_S,
    LONG_STEPS,
    LOOP_LIMIT_S,
    MARGIN_S,
    Known,
    Leave,
    Phase,
    StopReason,
    Wait,
    decide,
    may_be_consequence,
    read_reason,
)
from slurmddp.slurm.parsing import parse_show

NOW = 1_000_000.0
MAIN = replace(read_rank({}), stop_at=None)
PEER = replace(MAIN, rank=1, local_rank=1, world_size=2, local_world_size=2)
SIGNAL, LIMIT = StopReason("signal"), StopReason("time limit", NOW + 60)


def known(phase: Phase, **changes) -> Known:
    return Known(**{"phase": phase, "rank": MAIN, "cause": "SIGTERM", "saved": "all is saved", "now": NOW, **changes})


@pytest.mark.parametrize(
    ("phase", "learned", "actions"),
    [
        (Phase.START, [{}], ["go on"]),
        (Phase.EXIT, [{}], ["go on"]),
        (Phase.EXECUTABLE, [{}], ["answer executable"]),
        (Phase.SCRIPT, [{}, {"silent": []}], ["confirm", "ask slurm"]),
        (Phase.LEFT_LOOP, [{}, {"silent": []}, {"slurm": SIGNAL}], ["confirm", "ask slurm", Wait(LEFT_LIMIT_S)]),
        (
            Phase.LOOP,
            [{}, {"silent": []}, {"slurm": LIMIT}, {"waits": 1, "is_over": True}],
            ["confirm", "ask slurm", Wait(60 - MARGIN_S), "go on"],
        ),
        (
            Phase.LOOP,  # a peer is silent, and no step was finished for two steps' time, but then one was
            [{"longest_step_s": 4.0}, {"silent": [1]}, {"waits": 1, "is_stuck": False}, {"slurm": SIGNAL}],
            ["confirm", Wait(4 * LONG_STEPS), "ask slurm", Wait(LOOP_LIMIT_S)],
        ),
        (
            Phase.LOOP,
            [{"silent": [1]}, {"waits": 1, "is_stuck": True, "is_over": True}, {"slurm": SIGNAL}],
            [Wait(0), "ask slurm", "go on"],
        ),
        (Phase.LOOP, [{"silent": [], "slurm": StopReason("preempted", NOW + 1)}], [Wait(CONFIRM_LIMIT_S)]),
        (Phase.LOOP, [{"rank": PEER, "silent": []}, {"slurm": SIGNAL}], ["ask slurm", "go on"]),
        (Phase.CALL, [{}, {"slurm": SIGNAL}, {"silent": []}], ["ask slurm", "confirm", "save call"]),
        (Phase.CALL, [{"rank": PEER}, {"silent": []}], ["confirm", "go on"]),
    ],
)
def test_what_a_rank_does_one_thing_after_another(phase, learned, actions):
    found, changes = [], {}
    for more in learned:
        changes |= more
        found.append(decide(known(phase, **changes)))
    assert found == actions


def test_every_phase_has_a_policy():
    assert all(decide(known(phase)) for phase in Phase)


LOST = f"lost ranks 1, 3: no answer within {CONFIRM_LIMIT_S:g} s (SIGTERM); all is saved"


@pytest.mark.parametrize(
    ("phase", "changes", "status", "reason"),
    [
        (Phase.RENDEZVOUS, {}, RETRYABLE, "stop signal received (SIGTERM) before the ranks had met"),
        (Phase.SCRIPT, {"silent": [], "slurm": LIMIT}, STOPPED, "stop signal received (time limit); all is saved"),
        (Phase.SCRIPT, {"silent": [1, 3]}, RETRYABLE, LOST),
        (Phase.LEFT_LOOP, {"silent": [], "slurm": SIGNAL, "waits": 1}, STOPPED, "stop signal received (signal); all"),
        (Phase.LEFT_LOOP, {"silent": [1, 3]}, RETRYABLE, LOST),
        (Phase.LOOP, {"silent": [1, 3], "waits": 1, "is_stuck": True}, RETRYABLE, LOST),
        (Phase.LOOP, {"silent": [], "slurm": SIGNAL, "waits": 1}, RETRYABLE, "(signal), but the loop did not reach"),
        (Phase.LOOP, {"silent": [1], "slurm": SIGNAL, "waits": 2}, RETRYABLE, "(signal), but the loop did not reach"),
        (Phase.CALL, {"silent": [1, 3], "slurm": SIGNAL}, RETRYABLE, LOST),
    ],
)
def test_how_a_rank_ends(phase, changes, status, reason):
    action = decide(known(phase, **changes))
    assert isinstance(action, Leave)
    assert (action.verdict.status, action.record) == (status, True)
    assert reason in action.verdict.reason


def test_of_ranks_that_agreed_rank_0_alone_records_the_end():
    assert decide(known(Phase.SCRIPT, rank=PEER, silent=[], slurm=SIGNAL)).record is False
    assert decide(known(Phase.SCRIPT, rank=PEER, silent=[0])).record is True


@pytest.mark.parametrize(
    ("left_s", "slurm", "action"),
    [
        (30, LIMIT, "dismiss"),
        (600, LIMIT, "confirm"),
        (0, LIMIT, "confirm"),
        (-1, LIMIT, "confirm"),
        (30, SIGNAL, "confirm"),
    ],
)
def test_a_notice_that_slurm_sends_too_early_is_dismissed_for_a_call(left_s, slurm, action):
    assert decide(known(Phase.CALL, rank=replace(MAIN, stop_at=NOW + left_s), slurm=slurm)) == action


@pytest.mark.parametrize(
    ("phase", "error", "status", "expected"),
    [
        (Phase.LOOP, OSError(), FAILED, True),
        (Phase.LEFT_LOOP, OSError(), FAILED, True),
        (Phase.LEFT_LOOP, RuntimeError(), RETRYABLE, True),
        (Phase.SCRIPT, OSError(), FAILED, False),
        (Phase.LEFT_LOOP, RankError("cannot be saved"), FAILED, False),
        (Phase.LEFT_LOOP, SystemExit(1), FAILED, False),
    ],
)
def test_which_failures_may_be_consequences_of_a_stop_request(phase, error, status, expected):
    assert may_be_consequence(phase, error, Verdict(status, "gone")) is expected


END = "2026-11-21T14:36:30"
SHOWN = {
    "script killed": f"JobState=COMPLETING Reason=JobLaunchFailure Restarts=0 ExitCode=0:9 EndTime={END}",
    "cancelled": f"JobState=COMPLETING Reason=None Restarts=0 ExitCode=0:15 EndTime={END} PreemptTime=None",
    "requeued": f"JobState=COMPLETING Reason=None Restarts=1 ExitCode=0:0 EndTime={END}",
    "preempted": f"JobState=RUNNING Reason=None Restarts=0 EndTime={END} PreemptTime=2026-11-21T14:36:20",
    "time limit": f"JobState=RUNNING Reason=None Restarts=0 EndTime={END} PreemptTime=None",
    "signal": "JobState=RUNNING Reason=None Restarts=0 EndTime=Unknown PreemptTime=None",
}


@pytest.mark.parametrize("reason", SHOWN)
def test_the_reason_is_slurms(reason):
    (job,) = parse_show(f"JobId=17 JobName=x UserId=me(7) {SHOWN[reason]}")
    ends_at = datetime.fromisoformat(END).timestamp() if reason in ("preempted", "time limit") else None
    cause = "SIGUSR2" if reason == "time limit" else "SIGTERM"
    assert read_reason(job, cause, restarts="0", now=NOW, stop_at=NOW) == (reason, ends_at)
    if reason == "time limit":
        end = ends_at or 0.0
        assert read_reason(job, cause, restarts="0", now=end - 90, stop_at=end + 900).reason == "time limit", "moved"
        assert read_reason(job, cause, restarts="0", now=end - 7200, stop_at=end - 120).reason == "signal"


@pytest.mark.parametrize(
    ("cause", "stop_at", "reason"),
    [
        *(("SIGTERM", NOW, "signal"), ("SIGUSR2", NOW, "time limit"), ("SIGUSR2", NOW + 59, "time limit")),
        *(("clock", NOW, "time limit"), ("SIGUSR2", None, "signal"), ("SIGUSR2", NOW + 3600, "signal")),
    ],
)
def test_without_slurm_the_reason_is_the_signal_and_usr2_means_a_limit_only_near_one(cause, stop_at, reason):
    assert read_reason(None, cause, restarts="0", now=NOW, stop_at=stop_at) == (reason, None)
