"""Every sample of each epoch once, by any number of ranks, from any position."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.errors import RankError
from slurmddp.runtime.checkpoint import checkpointer
from slurmddp.runtime.checkpoint import sampler as module
from slurmddp.runtime.checkpoint.sampler import Sampler


def samplers(world_size: int, samples: int, batch_size: int, **options) -> list[Sampler]:
    """Return each rank's sampler of one world."""
    made = []
    for rank in range(world_size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                module.session, "current", lambda rank=rank: SimpleNamespace(rank=rank, world_size=world_size)
            )
            made.append(Sampler(samples, batch_size, **options))
    return made


worlds = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 7)), min_size=1, max_size=5)


@given(samples=st.integers(1, 50), seed=st.integers(0, 2**62), worlds=worlds)
def test_each_sample_of_each_epoch_is_taken_once_by_changing_worlds(samples, seed, worlds):
    """(ranks, batch, steps) one after the other, each going on from the position of the one before."""
    taken: list[int] = []
    state = None
    for world_size, batch_size, steps in worlds:
        ranks = samplers(world_size, samples, batch_size, seed=seed)
        for each in ranks:
            if state:
                each.load_state_dict(state)
        loaders = [iter(each) for each in ranks]
        for _ in range(steps):
            shares = [next(loader) for loader in loaders]
            taken += [index for group in zip(*shares, strict=True) for index in group]
            for each in ranks:
                each.consumed += each.global_batch
        state = ranks[0].state_dict()
    assert state["consumed"] == len(taken)
    for epoch in range(0, len(taken), samples):
        part = taken[epoch : epoch + samples]
        assert max(Counter(part).values()) == 1
        assert set(part) <= set(range(samples))


def test_the_order_depends_on_seed_and_epoch_alone():
    whole = next(iter(samplers(1, 100, 100, seed=1)[0]))
    by_two = [next(iter(each)) for each in samplers(2, 100, 50, seed=1)]
    assert [index for pair in zip(*by_two, strict=True) for index in pair] == whole
    assert next(iter(samplers(1, 100, 100, seed=2)[0])) != whole
    again = iter(samplers(1, 100, 100, seed=1)[0])
    assert next(again) == whole
    assert next(again) != whole


def test_without_shuffle_the_order_is_the_datas():
    assert next(iter(samplers(1, 5, 7, shuffle=False)[0])) == [0, 1, 2, 3, 4, 0, 1]


def test_what_a_loader_has_fetched_ahead_is_not_consumed():
    (sampler,) = samplers(1, 100, 10)
    ahead = iter(sampler)
    fetched = [next(ahead) for _ in range(3)]
    sampler.consumed += sampler.global_batch
    (later,) = samplers(1, 100, 10)
    later.load_state_dict(sampler.state_dict())
    assert next(iter(later)) == fetched[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "has seed 0, this run's 1"),
        ({"samples": 9}, "has samples 10, this run's 9"),
        ({"shuffle": False}, "shuffle"),
    ],
)
def test_another_order_is_refused(change, message):
    (before,) = samplers(1, 10, 2)
    (after,) = samplers(1, **{"samples": 10, "batch_size": 2, **change})
    with pytest.raises(RankError, match=message):
        after.load_state_dict(before.state_dict())


def test_a_loader_made_before_the_restore_is_found_out():
    (sampler,) = samplers(1, 10, 2)
    next(iter(sampler))
    with pytest.raises(RankError, match="make the loader's iterator after it"):
        sampler.load_state_dict(sampler.state_dict())


def test_a_loader_that_has_taken_a_batch_before_the_first_start_is_found_out(monkeypatch):
    (sampler,) = samplers(1, 10, 2)
    next(iter(sampler))
    monkeypatch.setattr(checkpointer.session, "current", SimpleNamespace)
    with pytest.raises(RankError, match="make the loader's iterator after it"):
        checkpointer.Checkpointer(model=torch.nn.Linear(1, 1), sampler=sampler)


def test_steps_until_an_epochs_end():
    (sampler,) = samplers(1, 10, 4)
    assert [sampler.steps_until(epochs) for epochs in (0, 1, 2)] == [0, 3, 5]
    sampler.consumed += sampler.global_batch
    assert (sampler.epoch, sampler.steps_until(1)) == (0, 2)


@pytest.mark.parametrize(("samples", "batch_size"), [(0, 1), (1, 0)])
def test_nothing_to_take_is_refused(samples, batch_size):
    with pytest.raises(RankError, match="both must be at least 1"):
        samplers(1, samples, batch_size)
