"""What only one rank has after a step, as bytes, and with the other ranks that keep it."""

import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from slurmddp.runtime.checkpoint.own_states import (
    Buffers,
    OwnState,
    Partners,
    is_sealed,
    open_states,
    pack,
    seal,
    two_ways,
)

SECRET = "of this attempt"  # noqa: S105 - of this test
STATE = {
    "numbers": (1, 2.5, None, True, "text"),
    "tensors": [torch.arange(6).reshape(2, 3), torch.tensor(1.5, dtype=torch.bfloat16), torch.zeros(0)],
    "nested": {"pair": (torch.ones(2), {3: torch.ones(1)})},
}


def sealed(step, *, state=None):
    return seal(SECRET, OwnState("17.0.0", step, 3, False, pack(state or STATE, {})))  # noqa: FBT003 - of a named tuple


def test_a_state_is_read_as_it_was_packed():
    first, second = open_states(sealed(7) + sealed(8))
    assert (first.step, second[:4]) == (7, ("17.0.0", 8, 3, False))
    read = second.state
    assert read["numbers"] == STATE["numbers"]
    assert all(torch.equal(one, other) for one, other in zip(read["tensors"], STATE["tensors"], strict=True))
    assert read["tensors"][1].dtype == torch.bfloat16
    assert torch.equal(read["nested"]["pair"][1][3], torch.ones(1))


@pytest.mark.parametrize("content", [b"", b"torn" * 20, sealed(8)[:-1], sealed(8) + b"0", b"\xff" * 99, bytes(99)])
def test_what_is_not_whole_or_was_sealed_by_another_is_told(content):
    assert is_sealed(sealed(8), SECRET)
    assert not is_sealed(sealed(8), "of another attempt")
    assert not is_sealed(content, SECRET)


def test_a_state_that_marshal_does_not_know_or_that_is_too_large_is_not_kept():
    assert pack({"own": object()}, {}) == b""
    assert [*open_states(sealed(1, state={"own": object()}))] == []
    assert [*open_states(sealed(1, state={"own": torch.zeros(2**17)}))] == []


class Counting(nn.Module):
    """A module with buffers of several kinds; `None` is one that it has not made yet."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("count", torch.zeros(2, dtype=torch.bfloat16))
        self.register_buffer("late", None)
        self.register_buffer("across", torch.zeros(3, 2).t())


def read(buffers, **words):
    (state,) = open_states(seal(SECRET, OwnState("17.0.0", 1, 0, False, pack({}, buffers.read(**words)))))  # noqa: FBT003
    return state.state["buffers"]["model"]


def change_in_place(module):
    module.norm(torch.randn(4, 3))
    module.across += 1


def change_data(module):
    module.count.data = torch.ones(5, dtype=torch.bfloat16)


def assign(module):
    module.count = module.count[:1]


def make_late(module):
    module.late = torch.ones(3)


@pytest.mark.parametrize("change", [change_in_place, change_data, assign, make_late])
def test_buffers_are_read_as_they_are_now(change):
    module = Counting()
    buffers = Buffers({"model": module})
    for _ in range(2):
        found, wanted = read(buffers), dict(module.named_buffers())
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        assert all(found[name].dtype == wanted[name].dtype for name in wanted)
        change(module)
    assert read(buffers, but={*map(id, module.norm.buffers())}).keys() == wanted.keys() - {
        f"norm.{name}" for name, _ in module.norm.named_buffers()
    }


def join(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    return Partners(SimpleNamespace(rank=rank, world_size=4), dist.group.WORLD, two_ways(4))


def leave(received):
    dist.barrier()
    received.close()
    received.join_thread()
    os._exit(0)


def run_four(program, *arguments):
    """Run a program as four ranks; return what each of them has put into its queue, by rank."""
    context = multiprocessing.get_context("spawn")
    received = [context.Queue() for _ in range(4)]
    started = [context.Process(target=program, args=(rank, *arguments, received[rank])) for rank in range(4)]
    for process in started:
        process.start()
    got = [queue.get(timeout=120) for queue in received]
    for process in started:
        process.join()
    return got


def exchange(rank, store, received):
    partners, got = join(rank, store), []
    for step, owns in enumerate([["short"], [], ["x" * 2**18, "short"], [object()], ["short"], ["short"]]):
        states = [OwnState("17.0.0", step, rank, False, pack({"own": own}, {})) for own in owns]  # noqa: FBT003
        partners.send(seal(SECRET, *states))
        partners.receive()
        found = open_states(partners.kept(SECRET))
        got.append({(one.rank, one.step, len(one.state["own"])) for one in found})
    received.put(got)
    leave(received)


@pytest.mark.parametrize(("nodes", "ranks_a_node"), [(2, 1), (3, 1), (2, 2), (2, 5), (3, 4), (5, 3), (64, 8)])
def test_one_of_two_partners_is_on_another_node(nodes, ranks_a_node):
    ranks = range(nodes * ranks_a_node)
    ways = two_ways(len(ranks))
    assert len(set(ways)) == min(2, len(ranks) - 1) and 0 not in ways
    for rank in ranks:
        partners = [(rank + way) % len(ranks) for way in ways]
        assert rank not in partners
        assert any(partner // ranks_a_node != rank // ranks_a_node for partner in partners)


def test_room_for_the_messages_of_all_ranks_takes_no_memory_before_they_come():
    """It was 3 MiB for each other rank, 190 MiB with 64 ranks of a framework's Trainer."""

    def used_pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    before = used_pages()
    partners = Partners(SimpleNamespace(rank=0, world_size=64), None, range(1, 64))
    assert (used_pages() - before) * os.sysconf("SC_PAGE_SIZE") < 2**24
    assert partners.kept(SECRET) == b""


def test_a_module_without_buffers_has_none():
    assert Buffers({"model": nn.Linear(1, 1)}).read() == {"model": {}}


def test_two_others_keep_the_states_of_each_rank(tmp_path):
    """Those of the last three messages, which hold one state, several or none, small and large ones."""
    large = {(2, 2**18), (2, 5)}
    wanted = [{(0, 5)}, {(0, 5)}, {(0, 5)} | large, large, large | {(4, 5)}, {(4, 5), (5, 5)}]
    for rank, got in enumerate(run_four(exchange, tmp_path / "store")):
        others = [(rank - way) % 4 for way in (2, 1)]
        assert got == [{(other, *one) for other in others for one in each} for each in wanted]
