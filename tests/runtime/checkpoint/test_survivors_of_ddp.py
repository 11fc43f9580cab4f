"""What two ranks under DistributedDataParallel give each other, and what one of them saves of both."""

import multiprocessing
import os
import random
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmddp.runtime.checkpoint import survivors
from slurmddp.runtime.checkpoint.own_states import open_states
from slurmddp.runtime.checkpoint.store import Store
from slurmddp.runtime.checkpoint.survivors import Survivor, adopt
from slurmddp.runtime.checkpoint.training_state import TrainingState

IDENTITY = "0" * 32
LAST = 12


def who(rank, **more):
    names = {"job": "17", "attempt": "0.0", "secret": "of this attempt", "device": torch.device("cpu")}
    return SimpleNamespace(**names, rank=rank, is_main=not rank, world_size=2, local_world_size=2, **more)


def train(rank, folder, told):
    """Rank 1 draws random numbers late in some steps of a first loop; then rank 1 alone saves the last step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    training = TrainingState(model=model, shared={"optimizer": optimizer}, own={}, device=torch.device("cpu"))
    store = Store(folder, identity=IDENTITY, keep=2, check_owner=lambda: None, say=print)
    survivor = Survivor(training, who(rank, control=dist.new_group(backend="gloo")), store)
    for first, last in ((1, 6), (7, LAST)):
        survivor.begin(first - 1)
        for step in range(first, last + 1):
            loss = model(torch.randn(3, 4)).square().sum()
            if rank and step == 3:
                random.random()  # noqa: S311 - no secret
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank and step == 4:
                random.random()  # noqa: S311 - no secret
            survivor.keep(step)
        if last < LAST:
            survivor.end()  # one rank has sent what it has, and the other keeps it for the next step
    own = training.collect_own()
    own["buffers"] = {path: buffer.clone() for path, buffer in own["buffers"]["model"].items()}
    model(torch.randn(3, 4))  # of the step in flight
    survivor._exchange(survivor._partners)
    if rank:
        survivor.save()
    told.put({"random": own["random"]["torch"].tolist(), "buffers": {k: v.tolist() for k, v in own["buffers"].items()}})
    dist.barrier()
    told.close()
    told.join_thread()
    os._exit(0)


def test_the_buffers_of_rank_0_and_the_random_numbers_of_each_are_saved_by_the_other(tmp_path, monkeypatch):
    """Also where one rank never keeps its promises, and of buffers that only rank 0 has sent."""
    context = multiprocessing.get_context("spawn")
    told = [context.Queue() for _ in range(2)]
    ranks = [context.Process(target=train, args=(rank, tmp_path, told[rank])) for rank in range(2)]
    for process in ranks:
        process.start()
    wanted = [queue.get(timeout=120) for queue in told]
    for process in ranks:
        process.join()
    (file,) = tmp_path.glob(".survived-*/1")
    sent = {(one.rank, one.step): one.state["buffers"]["model"] for one in open_states(file.read_bytes())}
    assert sent[0, LAST] and not sent[1, LAST]
    monkeypatch.setattr(survivors, "write_event", lambda *_: None)
    store = Store(tmp_path, identity=IDENTITY, keep=2, check_owner=lambda: None, say=print)
    adopt(store, who(0, print=print, list_ranks=list))
    saved = store.newest()
    assert saved.step == LAST
    states = store.load(saved, "ranks.pt")
    assert [state["random"]["torch"].tolist() for state in states] == [one["random"] for one in wanted]
    assert wanted[0]["buffers"] != wanted[1]["buffers"]
    for state in states:  # those of rank 0: the next forward gives them to all
        assert {path: buffer.tolist() for path, buffer in state["buffers"]["model"].items()} == wanted[0]["buffers"]
    model = store.load(saved, "model.pt")
    assert {path: model[path].tolist() for path in wanted[0]["buffers"]} == wanted[0]["buffers"]
