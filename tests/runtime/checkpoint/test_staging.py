"""A copy of a state in host memory, as a checkpoint gives it back."""

import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmddp import exit_codes
from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint.staging import Snapshot, check_plain
from slurmddp.runtime.checkpoint.store import Store

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
tensors = st.builds(
    lambda shape, dtype, seed: (torch.arange(torch.Size(shape).numel()) * 7 + seed).reshape(shape).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(DTYPES),
    st.integers(0, 100),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | tensors
keys = st.text(max_size=4) | st.integers(-3, 3)


def containers(children):
    return (
        st.lists(children, max_size=3)
        | st.lists(children, max_size=3).map(tuple)
        | st.dictionaries(keys, children, max_size=3)
        | st.dictionaries(keys, children, max_size=3).map(OrderedDict)
    )


states = st.recursive(leaves, containers, max_leaves=8)


def equal(one, other) -> bool:
    """Say whether two states have the same types, values, order and strides throughout."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def tensors_in(state) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    items = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else []
    return [tensor for item in items for tensor in tensors_in(item)]


@settings(deadline=None, max_examples=60)
@given(states, states)
def test_a_checkpoint_gives_back_what_was_copied(state, later):
    """Also when the memory is that of another state before."""
    snapshot = Snapshot()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), identity="1", keep=1, check_owner=lambda: None, say=print)
        for step, each in enumerate([state, later, state]):
            check_plain({"state": each})
            store.write(step, {"state.pt": snapshot.take(each)}, {})
            assert equal(store.load(store.newest(), "state.pt"), each)


@given(states)
def test_a_copy_stays_when_the_original_changes(state):
    copied = Snapshot().take(state)
    before = [tensor.clone() for tensor in tensors_in(state)]
    for tensor in tensors_in(state):
        tensor.zero_()
    assert all(map(equal, tensors_in(copied), before))


def test_later_copies_use_the_memory_of_the_first():
    snapshot = Snapshot()
    state = {"a": torch.ones(3), "b": [torch.ones(2)]}
    first = [tensor.data_ptr() for tensor in tensors_in(snapshot.take(state))]
    state["a"].add_(1)
    second = snapshot.take(state)
    assert [tensor.data_ptr() for tensor in tensors_in(second)] == first
    assert equal(second, state)


def test_equal_words_for_different_keys_do_not_share_memory():
    state = {"1": torch.ones(2), 1: torch.zeros(2)}
    snapshot = Snapshot()
    snapshot.take(state)
    assert equal(snapshot.take(state), state)


def test_tied_weights_stay_tied():
    weight = torch.ones(3, 2)
    copied = Snapshot().take({"encoder": weight, "decoder": weight, "view": weight.t()})
    assert copied["encoder"] is copied["decoder"]
    assert torch.equal(copied["view"], weight.t())


def test_only_what_is_looked_at_of_a_large_tensor_is_copied():
    copied = Snapshot().take({"row": torch.ones(1000, 10)[3]})
    assert copied["row"].untyped_storage().nbytes() == 40


def test_strides_stay():
    weight = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert Snapshot().take(weight).stride() == weight.stride()


def test_a_sparse_tensor_is_copied():
    sparse = torch.eye(3).to_sparse()
    copied = Snapshot().take({"a": sparse})["a"]
    sparse.zero_()
    assert torch.equal(copied.to_dense(), torch.eye(3))


def test_a_parameter_is_copied_without_its_history():
    copied = Snapshot().take([torch.nn.Parameter(torch.ones(2)) * 2])
    assert not copied[0].requires_grad and copied[0].tolist() == [2, 2]


def test_a_modules_state_keeps_the_versions_of_its_parts():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    copied = Snapshot().take(model.state_dict())
    assert copied._metadata == model.state_dict()._metadata
    assert equal(copied, model.state_dict())


def test_values_that_can_change_are_copied():
    numbers = {1, 2}
    copied = Snapshot().take({"seen": numbers})
    numbers.add(3)
    assert copied == {"seen": {1, 2}}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpus_tensors_come_to_pinned_memory():
    snapshot = Snapshot()
    state = {"a": torch.arange(1000, device="cuda"), "b": torch.ones(2)}
    for _ in range(2):
        state["a"].add_(1)
        copied = snapshot.take(state)
        assert copied["a"].is_pinned() and not copied["b"].is_pinned()
        assert torch.equal(copied["a"], state["a"].cpu())


class Pair(NamedTuple):
    one: int
    two: int


class Rough:
    def __reduce__(self):  # noqa: D105 the class's name says it
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (lambda step: step, "builtins.function"),
        (Pair(1, 2), ".Pair"),
        (threading.Lock(), "_thread.lock"),
        (Path("x"), "pathlib."),
        (Rough(), ".Rough"),
        (range(3), "builtins.range"),
    ],
)
def test_what_torch_would_refuse_to_load_is_named_by_its_path(leaf, kind):
    state = {"last_epoch": 1, "lr_lambdas": [leaf], "base_lrs": (0.1, torch.ones(2))}
    with pytest.raises(RankError) as caught:
        check_plain({"scheduler": state})
    assert str(caught.value).startswith("scheduler.lr_lambdas.0 is a ") and kind in str(caught.value)
    assert caught.value.exit_status == exit_codes.FAILED


def test_a_key_that_torch_would_refuse_is_named():
    with pytest.raises(RankError, match=r"state\.range\(0, 1\) is a builtins\.range"):
        check_plain({"state": {range(1): 1}})


def test_a_tensor_of_a_class_of_ones_own_is_refused():
    class Own(torch.Tensor):
        pass

    with pytest.raises(RankError, match="model.weight is a .*Own"):
        check_plain({"model": {"weight": torch.ones(2).as_subclass(Own)}})


def test_the_states_of_torchs_own_parts_are_plain():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    check_plain({"model": model.state_dict(), "parameters": list(model.parameters())})
    check_plain({"state": [optimizer.state_dict(), torch.get_rng_state(), torch.Size([1]), torch.float32]})
    check_plain({name: value for name, value in scheduler.state_dict().items() if name != "anneal_func"})


def test_the_check_does_not_touch_the_data():
    """A tensor without data, on the meta device, is accepted like any other."""
    check_plain({"weight": torch.empty(10**12, device="meta")})
