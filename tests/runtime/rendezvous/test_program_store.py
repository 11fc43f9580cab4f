"""The stores of the program's own groups: no rank connects before the store listens."""

import socket
import sys
import threading
import time
from datetime import timedelta

import pytest
from ranks import make_rank
from torch.distributed import rendezvous

from slurmddp.errors import PeerError
from slurmddp.runtime.rendezvous import head_store

MODULE = sys.modules[rendezvous.__module__]


@pytest.fixture
def made(monkeypatch):
    """What torch would create, as the options of each store."""
    found = []
    monkeypatch.setitem(vars(MODULE), "TCPStore", lambda **options: found.append(options))
    head_store.await_program_stores(make_rank(rank=1, world_size=2))
    return found


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def create(port, rank, timeout_s=60):
    MODULE._create_c10d_store("127.0.0.1", port, rank, 2, timedelta(seconds=timeout_s))


def test_rank_0_gives_its_store_a_socket_that_listens(made, free_port):
    create(free_port, rank=0)
    with socket.socket(fileno=made[0]["master_listen_fd"]) as listening:
        assert (listening.family, listening.getsockname()[1]) == (socket.AF_INET, free_port)


def test_a_port_that_is_taken_or_for_torch_to_choose_is_left_to_torch(made):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        create(listener.getsockname()[1], rank=0)
    create(0, rank=0)
    assert len(made) == 2 and not any("master_listen_fd" in options for options in made)


def test_another_rank_waits_until_the_store_listens(made, free_port):
    waiting = threading.Thread(target=create, args=(free_port, 1))
    waiting.start()
    time.sleep(0.3)
    assert not made
    with socket.create_server(("127.0.0.1", free_port)):
        waiting.join(10)
        assert not made[0]["is_master"]


def test_a_store_that_never_listens_is_a_lost_peer(made, free_port):
    with pytest.raises(PeerError, match=rf"reached no rank 0 at 127.0.0.1 port {free_port} within 0.2 s: "):
        create(free_port, rank=1, timeout_s=0.2)
    assert not made
