"""The stores of the program's own groups: no rank connects before the store listens."""

import socket
import sys
from datetime import timedelta

import pytest
import torch
from ranks import make_rank
from torch._C._distributed_c10d import HashStore
from torch.distributed import rendezvous

from slurmddp.errors import PeerError
from slurmddp.runtime.rendezvous import head_store

MODULE = sys.modules[rendezvous.__module__]


class LostStore(HashStore):
    """The store of a rank 0 that has gone."""

    def check(self, keys):
        raise torch.distributed.DistNetworkError(f"connection reset while {keys} were asked for")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def announce(monkeypatch, store, made, **rank):
    """Announce over this store; what torch would create is put into `made`."""
    monkeypatch.setitem(vars(MODULE), "TCPStore", lambda **options: made.append(options))
    head_store.announce_program_stores(make_rank(**{"rank": 1, "world_size": 2, **rank}), store)


def create(port, rank, timeout_s=60):
    MODULE._create_c10d_store("127.0.0.1", port, rank, 2, timedelta(seconds=timeout_s))


def test_rank_0_gives_its_store_a_socket_that_listens_and_says_so(monkeypatch):
    store, made = HashStore(), []
    announce(monkeypatch, store, made, rank=0, local_rank=0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    create(port, rank=0)
    with socket.socket(fileno=made[0]["master_listen_fd"]) as listening:
        assert (listening.family, listening.getsockname()[1]) == (socket.AF_INET, port)
    assert store.check([f"listening/{port}"])


def test_a_port_that_is_taken_is_left_to_torch(monkeypatch, port):
    store, made = HashStore(), []
    announce(monkeypatch, store, made, rank=0, local_rank=0)
    create(port, rank=0)
    assert "master_listen_fd" not in made[0] and store.check([f"listening/{port}"])


def test_another_rank_waits_for_the_word_of_rank_0(monkeypatch, port):
    store, made, asked = HashStore(), [], []
    announce(monkeypatch, store, made)

    def sleep(seconds):
        asked.append(seconds)
        if len(asked) == 20:
            store.set(f"listening/{port}", "yes")

    monkeypatch.setattr(head_store.time, "sleep", sleep)
    create(port, rank=1)
    assert len(asked) == 20 and asked[0] == 0.01 and max(asked) == 0.5
    assert timedelta(seconds=59) < made[0]["timeout"] <= timedelta(seconds=60)


def test_a_store_of_a_process_that_says_nothing_is_found_by_its_port(monkeypatch, port):
    made = []
    announce(monkeypatch, HashStore(), made)
    monkeypatch.setattr(head_store, "_PROBE_S", 0)
    create(port, rank=1)
    assert len(made) == 1


def test_without_a_word_half_the_time_is_left_to_torch(monkeypatch):
    made = []
    announce(monkeypatch, HashStore(), made)
    create(1, rank=1, timeout_s=0.2)
    assert timedelta(0) < made[0]["timeout"] <= timedelta(seconds=0.1)


def test_a_rank_0_that_is_gone_ends_the_wait(monkeypatch, port):
    announce(monkeypatch, LostStore(), [])
    with pytest.raises(PeerError, match=f"left before its store listened at port {port}"):
        create(port, rank=1)


def test_the_store_of_torchruns_agent_is_left_alone(monkeypatch):
    made = []
    announce(monkeypatch, HashStore(), made, agent_store=True)
    create(5, rank=0)
    assert made[0]["is_master"] and "master_listen_fd" not in made[0]
