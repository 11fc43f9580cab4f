"""A divided state in pieces, and back. On one rank; tests/worker/test_resume_sharded.py has several."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import make_rank
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint import sharded, training_state
from slurmddp.runtime.checkpoint.sharded import CollectiveSave
from slurmddp.runtime.checkpoint.store import INDEX, Store


@pytest.fixture(scope="module", autouse=True)
def _group():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Rows(torch.optim.Optimizer):
    """Descent by the mean of each row's squares: a state that is shaped otherwise than its parameter."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            mean = parameter.grad.square().mean(-1)
            row = self.state[parameter].setdefault("row", torch.zeros_like(mean))
            row += mean
            self.state[parameter]["steps"] = self.state[parameter].get("steps", 0) + 1


def trained(make, optimizer_of):
    torch.manual_seed(0)
    model = make(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)))
    optimizer = optimizer_of(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
    return {"model": model, "optimizer": optimizer}


def fresh(make, optimizer_of):
    torch.manual_seed(1)
    model = make(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)))
    return {"model": model, "optimizer": optimizer_of(model.parameters())}


def adam(parameters):
    return torch.optim.Adam(parameters, amsgrad=True)


def zero_adam(parameters):
    return ZeroRedundancyOptimizer(parameters, torch.optim.Adam, amsgrad=True)


def plain(model):
    return model


def write(parts, folder: Path):
    """Write the divided ones of the parts as the only rank; return the store and what was found."""
    divided = {name: part for name, part in parts.items() if training_state.is_divided(part)}
    store = Store(folder, identity="1", keep=1, check_owner=lambda: None, say=print)
    whole = {f"{name}.pt": training_state.state_of(part) for name, part in parts.items() if name not in divided}
    writers = CollectiveSave(divided, store, make_rank(), None)
    writers.write(3, {"state.pt": 3, **whole}, writers.collect_share(), {})
    return store, store.newest()


def check_same(one, other):
    """Compare two states, pieces as whole tensors."""
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            check_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            check_same(*pair)
    elif isinstance(one, torch.Tensor):
        pair = [tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for tensor in (one, other)]
        assert torch.equal(*pair)
    else:
        assert one == other


@pytest.mark.parametrize(
    ("saved", "resumed"),
    [
        ((fully_shard, adam), (fully_shard, adam)),
        ((fully_shard, adam), (plain, adam)),
        ((fully_shard, Rows), (fully_shard, Rows)),
        ((fully_shard, Rows), (plain, Rows)),
        ((plain, zero_adam), (plain, zero_adam)),
        ((plain, zero_adam), (plain, adam)),
    ],
)
def test_what_was_divided_comes_back(tmp_path, saved, resumed):
    """Into parts that are divided alike, and into plain ones."""
    before, after = trained(*saved), fresh(*resumed)
    store, found = write(before, tmp_path)
    loaded = sharded.load(found.folder, store.load(found, INDEX), after)
    whole = {name: store.load(found, f"{name}.pt") for name in after if name not in loaded}
    training_state.restore(after, {**whole, **loaded})
    for name, part in before.items():
        check_same(training_state.state_of(part), training_state.state_of(after[name]))


def test_no_file_of_it_is_unpickled_to_be_read(tmp_path):
    """The one that is a pickle is for torch's own tools."""
    before, after = trained(fully_shard, adam), fresh(fully_shard, adam)
    store, found = write(before, tmp_path)
    (found.folder / ".metadata").write_bytes(b"not even a pickle")
    training_state.restore(after, sharded.load(found.folder, store.load(found, INDEX), after))
    check_same(training_state.state_of(before["optimizer"]), training_state.state_of(after["optimizer"]))


def test_another_model_is_refused(tmp_path):
    store, found = write(trained(fully_shard, adam), tmp_path)
    other = {"model": fully_shard(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))}
    with pytest.raises(RankError, match="does not fit this model: .*size mismatch"):
        training_state.restore(other, sharded.load(found.folder, store.load(found, INDEX), other))


def test_a_model_is_divided_also_if_its_state_is_a_kind_of_dict():
    class Model(nn.Linear):
        def state_dict(self, *given, **named):
            return Counter(super().state_dict(*given, **named))

    assert training_state.is_divided(fully_shard(Model(2, 2)))


def test_a_whole_model_is_not_divided_by_a_resume():
    """The line says what to do instead."""
    whole, after = trained(plain, adam), fresh(fully_shard, adam)
    with pytest.raises(RankError, match="the checkpoint does not fit this model: .* --reset starts over"):
        training_state.restore(after, {name: training_state.state_of(part) for name, part in whole.items()})


def test_what_a_checkpoint_does_not_take_is_named(tmp_path):
    parts = trained(fully_shard, adam)
    parts["optimizer"].param_groups[0]["odd"] = print
    with pytest.raises(RankError, match=r"optimizer\.param_groups\.0\.odd is a builtins\.builtin"):
        write(parts, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["identity"]


def test_two_tensors_of_one_name_are_refused(tmp_path):
    class Twice:
        def state_dict(self):
            return {1: torch.ones(1), "1": torch.zeros(1)}

        def load_state_dict(self, state_dict):
            """Take nothing."""

    store = Store(tmp_path, identity="1", keep=1, check_owner=lambda: None, say=print)
    with pytest.raises(RankError, match="two tensors of the state are called odd.1; rename one"):
        CollectiveSave({"odd": Twice()}, store, make_rank(), None).collect_share()


def test_the_frames_of_optimizers_that_share_out_their_parameters_are_united():
    shares = [
        {
            "frame": {"optimizer": {"state": {number: {"a": number}}, "param_groups": [number]}},
            "divided": {},
            "entries": [("optimizer.lr", (), (), f"rank-{number}", 0, 9)],
        }
        for number in range(2)
    ]
    index = sharded.build_index(shares)
    assert index["frame"] == {"optimizer": {"state": {0: {"a": 0}, 1: {"a": 1}}, "param_groups": [0]}}
    assert len(index["entries"]) == 1, "what two ranks have written is in the index once"


def test_an_optimizer_that_steps_within_backward_is_refused():
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, overlap_with_ddp=True)
    with pytest.raises(RankError, match="overlap_with_ddp=True cannot be saved; leave that option out"):
        training_state.state_of(zero)


def test_the_older_sharding_is_refused():
    model = nn.Sequential(FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu")))
    with pytest.raises(RankError, match="use torch.distributed.fsdp.fully_shard instead"):
        training_state.is_divided(model)


def test_a_whole_state_is_that_of_the_plain_model():
    model = trained(fully_shard, adam)["model"]
    whole = training_state.full_state_dict(model)
    again = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
    again.load_state_dict(whole)
    check_same(model.state_dict(), again.state_dict())
    for wrap in (plain, nn.DataParallel, nn.parallel.DistributedDataParallel):
        check_same(again.state_dict(), training_state.full_state_dict(wrap(again)))


def test_a_training_without_divided_parts_does_not_import_what_they_need():
    code = "import sys, slurmddp.runtime.checkpoint.checkpointer; print('torch.distributed.checkpoint' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
