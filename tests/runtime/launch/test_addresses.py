"""Where the head is, and which interface leads there."""

import socket

import pytest
from ranks import make_rank

from slurmddp.errors import PeerError
from slurmddp.runtime.launch import addresses
from slurmddp.runtime.launch.rank import Rank


def rank_on(node: int, **changes) -> Rank:
    place = {"rank": node, "local_rank": 0, "node_rank": node, "host": f"n{node + 1}", "master_addr": "n1"}
    return make_rank(**{"world_size": 2, "local_world_size": 1, "hosts": ("n1", "n2"), **place, **changes})


def resolve_head(rank: Rank, environment: dict[str, str]) -> str:
    return addresses.resolve_head(rank.master_addr, environment, node_rank=rank.node_rank, host=rank.host)


@pytest.fixture
def names(monkeypatch):
    """Return a table of names and addresses that stands for the name service."""
    table: dict[str, list[str]] = {}
    monkeypatch.setattr(addresses, "resolve", lambda name: table.get(name, []))
    return table


@pytest.mark.parametrize(("node", "address"), [(1, "10.0.0.1"), (0, "127.0.1.1")])
def test_a_head_that_resolves_is_used_by_its_name_and_itself_may_resolve_to_loopback(names, node, address):
    names["n1"] = [address]
    assert resolve_head(rank_on(node), {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}) == "n1"


@pytest.mark.parametrize("found", [[], ["127.0.1.1"]])
def test_another_node_falls_back_to_slurms_addresses(names, found):
    names |= {"n1": found, "10.0.0.1": ["10.0.0.1"], "10.0.0.9": ["10.0.0.9"]}
    both = {"SLURMDDP_HEAD_NODE_ADDR": "10.0.0.1", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}
    assert resolve_head(rank_on(1), both) == "10.0.0.1"
    assert resolve_head(rank_on(1), {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}) == "10.0.0.9"


@pytest.mark.parametrize("found", [[], ["127.0.1.1"]])
def test_a_fallback_that_leads_nowhere_is_passed_over(names, found):
    """Where the site gives a node no address of its own, NodeAddr is the name again."""
    names |= {"n1": found, "10.0.0.9": ["10.0.0.9"]}
    both = {"SLURMDDP_HEAD_NODE_ADDR": "n1", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}
    assert resolve_head(rank_on(1), both) == "10.0.0.9"


def test_a_head_nobody_knows_is_named(names):
    with pytest.raises(PeerError, match="MASTER_ADDR n1 does not resolve on n2"):
        resolve_head(rank_on(1), {})
    names["n1"] = ["127.0.1.1"]
    with pytest.raises(PeerError, match=r"MASTER_ADDR n1 resolves to 127\.0\.1\.1, which is n2 itself"):
        resolve_head(rank_on(1), {})


def test_gloo_is_given_the_interface_when_the_own_name_is_loopback(names, monkeypatch):
    names[socket.gethostname()] = ["127.0.1.1"]
    monkeypatch.setattr(addresses, "source_address", {"n1": "127.0.0.1", "n2": "10.0.0.1"}.get)
    monkeypatch.setattr(addresses, "_interfaces", lambda: iter([("lo", "127.0.0.1"), ("eth0", "10.0.0.1")]))
    environment: dict[str, str] = {}
    assert addresses.choose_interface(rank_on(0), environment) == "eth0"
    assert environment == {"GLOO_SOCKET_IFNAME": "eth0"}


def test_gloo_is_left_alone_where_it_finds_its_way(names):
    environment: dict[str, str] = {}
    names[socket.gethostname()] = ["127.0.1.1"]
    assert addresses.choose_interface(rank_on(0, local_world_size=2), environment) is None
    names[socket.gethostname()] = ["10.0.0.1"]
    assert addresses.choose_interface(rank_on(0), environment) is None
    assert environment == {}


@pytest.mark.usefixtures("names")
def test_ranks_on_one_host_whose_name_does_not_resolve_use_loopback():
    environment: dict[str, str] = {}
    assert addresses.choose_interface(rank_on(0, local_world_size=2), environment) == "lo"
    assert environment == {"GLOO_SOCKET_IFNAME": "lo"}


def test_a_users_interface_is_kept(names):
    names[socket.gethostname()] = ["127.0.1.1"]
    environment = {"GLOO_SOCKET_IFNAME": "ib0"}
    assert addresses.choose_interface(rank_on(0), environment) is None
    assert environment == {"GLOO_SOCKET_IFNAME": "ib0"}


def test_every_interface_with_an_address_is_found():
    assert ("lo", "127.0.0.1") in list(addresses._interfaces())


def test_a_route_has_asource_address_and_nonsense_has_none():
    assert addresses.source_address("127.0.0.1") == "127.0.0.1"
    assert addresses.source_address("no-such-host.invalid") is None
    assert addresses._interface_to("127.0.0.1") is None


def test_only_an_address_of_this_host_is_local():
    assert addresses.is_local("localhost")
    assert not addresses.is_local("192.0.2.1")
    assert not addresses.is_local("no-such-host.invalid")
    assert addresses.resolve("\ud800" * 70) == []
