"""A slow rank is named; a healthy run accuses nobody."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.preloaded

PROGRAM = str(Path(__file__).parent.parent / "programs" / "slow.py")


def test_a_delay_in_one_ranks_backward_is_named_with_the_rank(start):
    ended = start("srun", 2, PROGRAM, "80", "0", "1", "0.05").wait(300)
    assert ended.statuses == [0, 0]
    (event,) = ended.events("straggler")
    assert (event["slow_rank"], event["slow_host"]) == (1, "n1")
    assert event["backward_s"] >= max(0.05, event["others_s"])
    (line,) = [line for line in ended.log(0).splitlines() if "is slow" in line]
    assert line.startswith("WARNING: rank 1 on n1 is slow: its backward takes ")
    assert "is slow" not in ended.log(1)


def test_a_healthy_run_accuses_nobody(start):
    ended = start("srun", 2, PROGRAM, "100", "0.05").wait(300)
    assert ended.statuses == [0, 0]
    assert ended.events("straggler") == []
