"""The steps are timed, the loop ends after as many as were asked for, and a slow rank is named."""

import pytest
import torch
import torch.distributed as dist
from ranks import make_rank
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from slurmddp.errors import RankError
from slurmddp.runtime import step_times
from slurmddp.runtime.step_times import TIMES, StepTimer, Stragglers, timer_from_environment

CPU = torch.device("cpu")
WHO = make_rank(0, 4, local_world_size=2, hosts=("n1", "n2"))


def compared(*rounds, step_us=10_000):
    stragglers = Stragglers([], WHO)
    return [stragglers.find_slow(step_us, backwards_us) for backwards_us in rounds]


def test_a_rank_is_named_when_its_backward_was_long_several_times_in_a_row():
    *before, named = compared(*[(1000, 51_000, 1100, 900)] * TIMES)
    assert before == [[]] * (TIMES - 1)
    assert named == [(1, 51_000, 1000)]


def test_of_two_ranks_the_slower_is_compared_with_the_other():
    assert compared(*[(9000, 5000)] * TIMES)[-1] == [(0, 9000, 5000)]


def test_two_slow_ranks_are_both_named():
    assert [rank for rank, _, _ in compared(*[(9000, 5000, 9000, 5000)] * TIMES)[-1]] == [0, 2]


@pytest.mark.parametrize(
    "rounds",
    [
        [(9000, 5000), (5000, 9000)] * TIMES,
        [(9000, 5000)] * (TIMES - 1) + [(5000, 5000)] + [(9000, 5000)] * (TIMES - 1),
        [(6000, 5000)] * TIMES,
        [(1200, 200)] * TIMES,
        [(9000, 0)] * TIMES,
        [()] * TIMES,
    ],
    ids=["in turn", "once not", "a little", "nothing beside the step", "not measured", "between rounds"],
)
def test_nobody_is_accused(rounds):
    assert not any(compared(*rounds, step_us=20_000))


def test_a_rank_is_named_once_with_its_host(capsys):
    stragglers = Stragglers([], WHO)
    for _ in range(3 * TIMES):
        stragglers.compare(10_000, (1000, 1000, 1000, 51_000))
    assert capsys.readouterr().out == (
        "WARNING: rank 3 on n2 is slow: its backward takes 51.0 ms, others 1.0 ms, and every step waits for it\n"
    )


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_torch_times_the_backward_and_says_which_iteration_it_was():
    """The contract with torch's private names."""
    model = DistributedDataParallel(nn.Linear(64, 64))
    stragglers = Stragglers([model], WHO)
    assert stragglers.measure() == 0
    for _ in range(3):
        model(torch.randn(64, 64)).sum().backward()
    data = model._get_ddp_logging_data()
    assert data["iteration"] >= 2
    assert data["backward_compute_time"] > 0
    assert stragglers.measure() == data["backward_compute_time"] // 1000 > 0
    assert stragglers.measure() == 0, "no news"


def test_a_block_has_a_twentieth_of_the_steps_and_one_at_least(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(step_times.time, "perf_counter", lambda: float(next(now)))
    measured = StepTimer(60, [], CPU)
    for _ in range(7):
        measured.count()
    told = measured.event(step=7, total=70, world_size=1, samples=None)
    assert (told.block, told.times_s, told.waits_s, told.asked) == (3, (1 / 3, 1 / 3), (), 60)
    assert StepTimer(5, [], CPU).event(step=0, total=0, world_size=1, samples=None).block == 1


@pytest.mark.usefixtures("alone")
def test_what_a_backward_waits_for_others_is_measured_at_the_end_of_each_block():
    model = DistributedDataParallel(nn.Linear(8, 1))
    measured = StepTimer(40, [model], CPU)
    for _ in range(12):
        model(torch.ones(4, 8)).sum().backward()
        measured.count()
    told = measured.event(step=12, total=40, world_size=1, samples=4)
    assert {"backward_comm_time", "backward_compute_comm_overlap_time"} <= set(model._get_ddp_logging_data())
    assert len(told.waits_s) == len(told.times_s) == 6 and all(wait >= 0 for wait in told.waits_s)


def test_the_loop_ends_after_the_steps_that_were_asked_for(monkeypatch):
    monkeypatch.delenv("SLURMDDP_STEP_LIMIT", raising=False)
    assert timer_from_environment([], CPU) is None
    monkeypatch.setenv("SLURMDDP_STEP_LIMIT", "12")
    assert timer_from_environment([], CPU).asked == 12


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1.5", "٣"])
def test_steps_that_are_no_number_are_refused(text, monkeypatch):
    monkeypatch.setenv("SLURMDDP_STEP_LIMIT", text)
    with pytest.raises(RankError, match="SLURMDDP_STEP_LIMIT=.* it is set by --steps"):
        timer_from_environment([], CPU)
