"""Finds the address of the head node and the network interface to it, by name lookups and routes. Sends no data."""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress

from slurmddp import variables
from slurmddp.errors import PeerError
from slurmddp.runtime.launch.rank import Rank

FALLBACKS = (variables.HEAD_ADDRESS, "SLURM_LAUNCH_NODE_IPADDR")
SIOCGIFADDR = 0x8915
"""Linux's request number for an interface's IPv4 address (netdevice(7))."""


def resolve_head(name: str, environment: Mapping[str, str], *, node_rank: int, host: str) -> str:
    """Return a name or address by which the node `host`, the `node_rank`-th of the job, reaches the head `name`.

    That is the name itself, if it resolves, and on other nodes not to loopback. Else it is Slurm's NodeAddr, else the
    address of the node that started srun. Raises PeerError when none of them is known.
    """
    for candidate in filter(None, (name, *map(environment.get, FALLBACKS))):
        addresses = resolve(candidate)
        if addresses and (node_rank == 0 or not all(map(_is_loopback, addresses))):
            return candidate
    addresses = resolve(name)
    fault = f"resolves to {addresses[0]}, which is {host} itself" if addresses else "does not resolve"
    raise PeerError(
        f"MASTER_ADDR {name} {fault} on {host}, and Slurm gives no address for it "
        f"({' and '.join(FALLBACKS)} do not lead there); put the node into DNS or /etc/hosts"
    )


def choose_interface(rank: Rank, environment: MutableMapping[str, str]) -> "str | None":
    """Set GLOO_SOCKET_IFNAME to the interface that gloo must use and return it; None if gloo needs no help.

    gloo binds to the address of the host's own name. If that is 127.0.1.1, or the name does not resolve, gloo binds to
    loopback, which ranks on other hosts cannot reach; where all ranks are on one host, it only warns.
    """
    own = resolve(socket.gethostname())
    if environment.get("GLOO_SOCKET_IFNAME") or not all(map(_is_loopback, own)):
        return None
    if rank.nodes == 1:
        interface = None if own else "lo"
    else:
        targets = (rank.master_addr, *rank.hosts, *(environment.get(name, "") for name in FALLBACKS))
        interface = next((found for target in targets if (found := _interface_to(target))), None)
    if interface:
        environment["GLOO_SOCKET_IFNAME"] = interface
    return interface


def resolve(name: str) -> list[str]:
    """Return the addresses of a name; empty when it does not resolve."""
    with suppress(OSError, UnicodeError):
        return [str(item[4][0]) for item in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return []


def is_local(name: str) -> bool:
    """Return whether a name's address belongs to this host: only then can a socket be bound to it."""
    for address in resolve(name):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            return True
    return False


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _interface_to(target: str) -> "str | None":
    """Return the interface of the route to the target."""
    source = source_address(target) if target else None
    if source is None or _is_loopback(source):
        return None
    return next((name for name, address in _interfaces() if address == source), None)


def source_address(target: str) -> "str | None":
    """Return the local address of the route to the target; None without a route."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 9))
        return str(probe.getsockname()[0])
    return None


def _interfaces() -> Iterator[tuple[str, str]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield name, socket.inet_ntoa(answer[20:24])
