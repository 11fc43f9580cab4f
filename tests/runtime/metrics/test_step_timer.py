"""Steps are counted, timed in blocks, and the loop ends after as many as were asked for."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from slurmddp.errors import RankError
from slurmddp.runtime.metrics import step_timer

CPU = torch.device("cpu")


def test_a_block_has_a_twentieth_of_the_steps_and_one_at_least(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(step_timer.time, "perf_counter", lambda: float(next(now)))
    measured = step_timer.StepTimer(60, [], CPU)
    for _ in range(7):
        measured.count()
    told = measured.event(step=7, total=70, world_size=1, samples=None)
    assert (told.block, told.times_s, told.waits_s, told.asked) == (3, (1 / 3, 1 / 3), (), 60)
    assert step_timer.StepTimer(5, [], CPU).event(step=0, total=0, world_size=1, samples=None).block == 1


def test_what_a_backward_waits_for_others_is_measured_at_the_end_of_each_block():
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(nn.Linear(8, 1))
        measured = step_timer.StepTimer(40, [nn.Sequential(model)], CPU)
        for _ in range(12):
            model(torch.ones(4, 8)).sum().backward()
            measured.count()
        told = measured.event(step=12, total=40, world_size=1, samples=4)
        known = model._get_ddp_logging_data()
        assert {"backward_comm_time", "backward_compute_comm_overlap_time"} <= set(known)
        assert len(told.waits_s) == len(told.times_s) == 6 and all(wait >= 0 for wait in told.waits_s)
    finally:
        dist.destroy_process_group()


def test_the_loop_ends_after_the_steps_that_were_asked_for(monkeypatch):
    monkeypatch.delenv("SLURMDDP_STEP_LIMIT", raising=False)
    assert step_timer.from_environment([], CPU) is None
    monkeypatch.setenv("SLURMDDP_STEP_LIMIT", "12")
    assert step_timer.from_environment([], CPU).asked == 12


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1.5", "٣"])
def test_steps_that_are_no_number_are_refused(text, monkeypatch):
    monkeypatch.setenv("SLURMDDP_STEP_LIMIT", text)
    with pytest.raises(RankError, match="SLURMDDP_STEP_LIMIT=.* it is set by --steps"):
        step_timer.from_environment([], CPU)
