"""Which rank is slow, by the times of all."""

import pytest
import torch
import torch.distributed as dist
from ranks import make_rank
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from slurmddp.runtime.metrics.stragglers import TIMES, Comparison, Slow, Stragglers

WHO = make_rank(0, 4, local_world_size=2, hosts=("n1", "n2"))


def compared(*rounds, step_us=10_000):
    comparison = Comparison()
    return [comparison.add(step_us, backwards_us) for backwards_us in rounds]


def test_a_rank_is_named_when_its_backward_was_long_several_times_in_a_row():
    *before, named = compared(*[(1000, 51_000, 1100, 900)] * TIMES)
    assert before == [[]] * (TIMES - 1)
    assert named == [Slow(1, 51_000, 1000)]


def test_of_two_ranks_the_slower_is_compared_with_the_other():
    assert compared(*[(9000, 5000)] * TIMES)[-1] == [Slow(0, 9000, 5000)]


def test_two_slow_ranks_are_both_named():
    assert [slow.rank for slow in compared(*[(9000, 5000, 9000, 5000)] * TIMES)[-1]] == [0, 2]


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
