"""How many finished steps are done again after one of two ranks was killed, soon after the start and later."""

import multiprocessing
import os
import random
import signal
import time
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slurmddp.runtime.checkpoint import survivors
from slurmddp.runtime.checkpoint.store import Store
from slurmddp.runtime.checkpoint.survivors import Survivor, adopt
from slurmddp.runtime.checkpoint.training_state import TrainingState

CPU = torch.device("cpu")
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["slurmddp.runtime.checkpoint.survivors"])


def who(rank, **more):
    names = {"job": "17", "attempt": "0.0", "secret": "of this attempt", "device": CPU}
    return SimpleNamespace(**names, rank=rank, is_main=not rank, world_size=2, local_world_size=2, **more)


def open_store(folder):
    return Store(folder, identity="0" * 32, keep=2, check_owner=lambda: None, say=print)


def train(rank, folder, start, killed, drawing, told):
    """Train from a step on; rank 1 is killed at the place `killed`, a number of steps after the start and a moment."""

    def reach(moment):
        if rank and (step - start, moment) == killed:
            time.sleep(0.3 * (moment != "gradients"))  # what it has sent arrives
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    training = TrainingState(model=model, shared={"optimizer": optimizer}, own={}, device=CPU)
    survivor = Survivor(training, who(rank, control=dist.new_group(backend="gloo")), open_store(folder))
    survivor.begin(start)
    register_optimizer_step_pre_hook(lambda *_: reach("gradients"))  # after the survivor's
    step = start
    try:
        while True:
            step += 1
            loss = model(torch.randn(3, 4)).square().sum()
            reach("forward")
            if drawing == "after the forward":
                random.random()  # noqa: S311 - no secret
            loss.backward()
            optimizer.step()
            if drawing == "late" or (drawing == "late, once" and step - start == 5):
                random.random()  # noqa: S311 - no secret
            survivor.keep(step)
            reach("end")
    except RuntimeError:  # the peer is lost
        survivor.save()
    told.put(survivor._finished - start)
    told.close()
    told.join_thread()
    os._exit(0)


def lose_rank(folder, start, killed, drawing=""):
    """Return how many steps the other rank finished since the start, and how many of these must be done again."""
    store, told = open_store(folder), PROCESSES.Queue()
    if start:
        store.write(start, {"model.pt": {}}, {})
    ranks = [PROCESSES.Process(target=train, args=(rank, folder, start, killed, drawing, told)) for rank in range(2)]
    for process in ranks:
        process.start()
    finished = told.get(timeout=120)
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0, -signal.SIGKILL]
    adopt(store, who(0, print=print, list_ranks=list))
    saved = store.newest()
    return finished, start + finished - (saved.step if saved else 0)


@pytest.fixture(autouse=True)
def _no_events(monkeypatch):
    monkeypatch.setattr(survivors, "write_event", lambda *_: None)


@pytest.mark.parametrize(("start", "drawing"), [(0, ""), (100, ""), (100, "after the forward")])
@pytest.mark.parametrize(
    ("killed", "finished", "again"),
    [
        ((1, "forward"), 0, 0),
        ((1, "gradients"), 1, 1),
        ((1, "end"), 1, 0),
        ((2, "forward"), 1, 0),
        ((2, "gradients"), 2, 0),
    ],
)
def test_only_a_rank_that_has_given_away_the_gradients_of_the_first_step_costs_it(
    tmp_path, start, drawing, killed, finished, again
):
    """The same after a checkpoint, and where the program draws random numbers after its forward."""
    assert lose_rank(tmp_path, start, killed, drawing) == (finished, again)


@pytest.mark.parametrize(
    ("drawing", "killed", "again"),
    [
        ("late", (4, "forward"), 0),
        ("late", (4, "gradients"), 4),
        ("late", (4, "end"), 0),
        ("late, once", (5, "end"), 0),
        ("late, once", (6, "forward"), 0),
        ("late, once", (8, "gradients"), 8),
    ],
)
def test_a_program_that_has_drawn_after_its_optimizers_step_can_lose_the_steps_since_the_checkpoint(
    tmp_path, drawing, killed, again
):
    """By a rank that has given its gradients away: what it draws later is not with the others. Else by none."""
    assert lose_rank(tmp_path, 100, killed, drawing)[1] == again
