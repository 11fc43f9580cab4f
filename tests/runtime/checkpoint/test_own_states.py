"""What only one rank has after a step, as bytes, and with the other ranks that keep it."""

import multiprocessing
import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from slurmddp.runtime.checkpoint.own_states import OwnState, Partners, is_sealed, open_states, pack

SECRET = "of this attempt"  # noqa: S105 - of this test
STATE = {
    "numbers": (1, 2.5, None, True, "text"),
    "tensors": [torch.arange(6).reshape(2, 3), torch.tensor(1.5, dtype=torch.bfloat16), torch.zeros(0)],
    "nested": {"pair": (torch.ones(2), {3: torch.ones(1)})},
}


def sealed(step, *, state=None):
    return OwnState("17.0.0", step, 3, False, pack(state or STATE)).seal(SECRET)  # noqa: FBT003 - of a named tuple


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
    assert pack({"own": object()}) == b""
    assert sealed(1, state={"own": object()}) == b""
    assert sealed(1, state={"own": torch.zeros(2**17)}) == b""


def join(rank, store, ranks_a_node):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    own = pack({"own": rank})
    session = SimpleNamespace(control=None, rank=rank, world_size=4, local_world_size=ranks_a_node)
    return Partners(session, len(own)), own


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


def exchange(rank, store, ranks_a_node, received):
    partners, own = join(rank, store, ranks_a_node)
    got = []
    for content in (own, b"", b"x" * 9000, own):
        partners.send(OwnState("17.0.0", 1, rank, False, content).seal(SECRET) if content else b"")  # noqa: FBT003
        states = {place: [*open_states(sealed)] for place, sealed in partners.receive().items()}
        got.append({place: [one.state for one in found] for place, found in states.items()})
    received.put(got)
    leave(received)


@pytest.mark.parametrize(("ranks_a_node", "sources"), [(2, (-2, -1)), (1, (-1, -2)), (4, (-1, -2))])
def test_two_others_keep_the_state_of_each_rank_one_of_them_on_another_node(tmp_path, ranks_a_node, sources):
    for rank, got in enumerate(run_four(exchange, tmp_path / "store", ranks_a_node)):
        whole = {place: [{"own": (rank + way) % 4}] for place, way in enumerate(sources)}
        assert got == [whole, {}, {}, whole]


STEPS = range(1, 9)


def promises(rank, step):
    """Rank 0 always promises that its early state is final, rank 1 never, the others now and then."""
    return (True, False, step % 3 > 0, step % 2 > 0)[rank]


def promise(rank, store, received):
    partners, own = join(rank, store, 2)
    got = []
    for step in STEPS:
        early, final = (OwnState("17.0.0", step, rank, is_early, own) for is_early in (True, False))
        kept = partners.receive()
        partners.send(early.seal(SECRET, is_promised=promises(rank, step)))
        kept_early = partners.receive()
        partners.send(None if promises(rank, step) else final.seal(SECRET))
        got += [kept, kept_early]
    received.put([[(one.rank, one.step, one.is_early) for one in open_states(b"".join(each.values()))] for each in got])
    leave(received)


def test_a_state_that_was_promised_to_be_final_is_not_sent_again(tmp_path):
    for rank, got in enumerate(run_four(promise, tmp_path / "store")):
        sources = [(rank - way) % 4 for way in (2, 1)]
        wanted = []
        for step in STEPS:
            finals = [(one, step - 1, False) for one in sources if step > 1 and not promises(one, step - 1)]
            wanted += [finals, [(one, step, True) for one in sources]]
        assert got == wanted


def promise_too_much(rank, store, received):
    partners, own = join(rank, store, 2)
    for step in range(1, 4):
        state = OwnState("17.0.0", step, rank, True, own if rank else b"x" * 9000)  # noqa: FBT003
        partners.receive()
        partners.send(state.seal(SECRET, is_promised=True))
        partners.receive()
        partners.send(None)
    received.put(len(partners.receive()))
    leave(received)


def test_nobody_waits_for_a_state_that_was_promised_and_is_too_large(tmp_path):
    assert run_four(promise_too_much, tmp_path / "store") == [0, 0, 0, 0]
